//! Scenarios: sessions in order with cookies and data, verified bodies, and target files of vegeta.

use crate::common::{Finished, Scratch, annulus, serve};
use bytes::Bytes;
use std::cell::RefCell;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::rc::Rc;
use tokio::runtime::Builder;
use tokio::task::{LocalSet, spawn_local};

/// One connection to a shop. `/login` with a user in the body sets a cookie, and `/cart` with that
/// cookie answers with the user's name. `/plain` always succeeds, and any other request gets status
/// 403. A client must not send back the other cookies that `/login` sets: one belongs to `/staff`,
/// one has expired, and one belongs to another domain.
#[derive(Default)]
struct Shop {
    user: String,
}

/// The status, the values of `Set-Cookie`, and the body.
type Reply = (u16, Vec<String>, String);

impl Shop {
    fn reply(&mut self, path: &str, cookie: &str, body: Vec<u8>) -> Reply {
        match path {
            "/login" if cookie.is_empty() && !body.is_empty() => {
                self.user = String::from_utf8(body).unwrap();
                let user = format!("user={}; Path=/; Max-Age=600; Secure", self.user);
                let others =
                    ["staff=1; Path=/staff", "old=1; Max-Age=0", "other=1; Domain=other.example"];
                let all = others.map(str::to_owned).into_iter().chain([user]);
                (200, all.collect(), "welcome".to_owned())
            }
            "/cart" if cookie == format!("user={}", self.user) => {
                (200, Vec::new(), format!("cart of {}", self.user))
            }
            "/plain" => (200, Vec::new(), "plain".to_owned()),
            _ => (403, Vec::new(), format!("{path} with {cookie}")),
        }
    }
}

/// Serves one connection over HTTP/1.1.
fn serve_one(stream: TcpStream) {
    let (mut stream, mut shop) = (BufReader::new(stream), Shop::default());
    loop {
        let (mut first, mut cookie, mut length, mut line) =
            <(String, String, usize, String)>::default();
        loop {
            line.clear();
            if !matches!(stream.read_line(&mut line), Ok(1..)) {
                return;
            }
            let text = line.trim_end();
            match text.split_once(": ") {
                _ if first.is_empty() => first = text.to_owned(),
                Some(("Cookie", value)) => cookie = value.to_owned(),
                Some(("Content-Length", value)) => length = value.parse().unwrap(),
                _ if text.is_empty() => break,
                _ => {}
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).unwrap();
        let (status, cookies, text) = shop.reply(first.split(' ').nth(1).unwrap(), &cookie, body);
        let cookies: String =
            cookies.iter().map(|cookie| format!("Set-Cookie: {cookie}\r\n")).collect();
        let reply =
            format!("HTTP/1.1 {status} X\r\n{cookies}Content-Length: {}\r\n\r\n{text}", text.len());
        stream.get_mut().write_all(reply.as_bytes()).unwrap();
    }
}

/// Starts the shop over HTTP/1.1.
pub(crate) fn shop() -> SocketAddr {
    serve(serve_one)
}

/// Answers one request over HTTP/2.
async fn answer_h2(
    shop: &RefCell<Shop>,
    request: http::Request<h2::RecvStream>,
    mut respond: h2::server::SendResponse<Bytes>,
) -> Result<(), h2::Error> {
    let (head, mut stream) = request.into_parts();
    let mut body = Vec::new();
    while let Some(bytes) = stream.data().await {
        let bytes = bytes?;
        stream.flow_control().release_capacity(bytes.len())?;
        body.extend(bytes);
    }
    let cookie = head.headers.get("cookie").map_or("", |value| value.to_str().unwrap());
    let (status, cookies, text) = shop.borrow_mut().reply(head.uri.path(), cookie, body);
    let mut response = http::Response::builder().status(status);
    for cookie in cookies {
        response = response.header("set-cookie", cookie);
    }
    respond.send_response(response.body(()).unwrap(), false)?.send_data(text.into(), true)
}

/// Starts the shop over HTTP/2 without TLS.
fn serve_h2() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    listener.set_nonblocking(true).unwrap();
    std::thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_io().build().unwrap();
        LocalSet::new().block_on(&runtime, async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                spawn_local(async move {
                    let shop = Rc::new(RefCell::new(Shop::default()));
                    let Ok(mut connection) = h2::server::handshake(stream).await else { return };
                    while let Some(Ok((request, respond))) = connection.accept().await {
                        let shop = Rc::clone(&shop);
                        spawn_local(async move { answer_h2(&shop, request, respond).await });
                    }
                });
            }
        });
    });
    address
}

fn load(args: &[&str]) -> Finished {
    annulus(["load", "-c", "3", "-n", "90", "--json", "-"].iter().chain(args))
}

#[test]
fn one_file_describes_a_session_with_cookies_and_data() {
    for (address, h2) in [(shop(), false), (serve_h2(), true)] {
        check_session(address, h2);
    }
}

fn check_session(address: SocketAddr, h2: bool) {
    let scratch = Scratch::new("load-scenario");
    let [file, users] = ["scenario.toml", "users.csv"].map(|name| scratch.path(name));
    std::fs::write(&users, "user,item\nann,1\n\"bob jr\",2\ncid,3\n").unwrap();
    let text = format!(
        "target = \"http://{address}\"\nconnections = 3\nrequests = 90\ncookies = true\n\
         h2 = {h2}\nin-order = true\ndata = \"{users}\"\n\
         [[request]]\npath = \"/login\"\nbody = \"{{user}}\"\nexpect = \"welcome\"\n\
         [[request]]\npath = \"/cart\"\nheader = [\"X-Item: {{item}}\"]\n\
         expect = \"regex:^cart of (ann|bob jr|cid)$\"\n"
    );
    std::fs::write(&file, &text).unwrap();
    let finished = annulus(["load", &file, "--json", "-"]);
    assert_eq!((finished.code, &*finished.stderr), (Some(0), ""), "{finished:?}");
    let json = finished.json();
    assert_eq!((&json["responses"], &json["statuses"]["200"]), (&90.into(), &90.into()), "{json}");
    assert_eq!(json["classes"], serde_json::json!(["POST /login", "GET /cart"]));
    // Without cookies, the second request of each session is refused.
    std::fs::write(&file, text.replace("cookies = true", "cookies = false")).unwrap();
    let json = annulus(["load", &file, "--json", "-"]).json();
    let [logins, carts] = ["200", "403"].map(|status| json["statuses"][status].as_u64().unwrap());
    // The last session of each client may end early.
    assert!(logins + carts == 90 && carts >= 40, "{json}");
    for (from, to, part) in [
        ("path = \"/cart\"", "pth = \"/cart\"", "unknown field `pth`"),
        ("{user}", "{name}", "the field '{name}' at character 1 is unknown"),
        ("expect = \"welcome\"", "expect = \"length:x\"", "write length:128"),
        ("in-order = true", "pipeline = 2", "2 messages are in flight: use 1"),
        ("path = \"/login\"", "weight = 3\npath = \"/login\"", "the weight 3 has no effect"),
    ] {
        std::fs::write(&file, text.replace(from, to)).unwrap();
        annulus(["load", &file]).fails_with(2, &[part]);
    }
    std::fs::write(&users, "user,item\nann\n").unwrap();
    std::fs::write(&file, &text).unwrap();
    annulus(["load", &file]).fails_with(2, &["users.csv: line 2: 1 value instead of 2"]);
}

#[test]
fn bodies_are_verified_in_every_form() {
    for (address, options) in [(shop(), &[][..]), (serve_h2(), &["--h2"])] {
        check_bodies(&format!("http://{address}/plain"), options);
    }
}

fn check_bodies(url: &str, options: &[&str]) {
    let load = |expected: &str| load(&[&[url, "--expect", expected], options].concat());
    let hash = "sha256:a116c9d2d46d6f8674268a4e5a5f2d7d06c1e3a5a0bd5a6f6e3a4d4b1c0f0c11";
    for expected in ["plain", "text:plain", "length:5", "regex:^pl.*n$"] {
        let finished = load(expected);
        assert_eq!((finished.code, &*finished.stderr), (Some(0), ""), "{finished:?}");
    }
    for (expected, first) in [
        ("plan", "the body plain"),
        ("length:6", "the body has 5 bytes instead of 6"),
        ("regex:^x", "the body plain"),
        (hash, "the body has the SHA-256 hash "),
    ] {
        let finished = load(expected);
        finished.fails_with(1, &["every reply", "wrong body 90", first]);
        let json = finished.json();
        assert_eq!(
            (&json["refused"], &json["statuses"]["200"]),
            (&90.into(), &90.into()),
            "{json}"
        );
    }
}

#[test]
fn target_file_of_vegeta_is_sent_in_order() {
    let (address, scratch) = (shop(), Scratch::new("load-targets"));
    let file = scratch.path("targets.txt");
    let text = format!(
        "# plain twice\nGET http://{address}/plain\nX-A: b\n\nGET http://{address}/plain\n\n\
         {{\"method\": \"POST\", \"url\": \"http://{address}/login\", \"body\": \"YW5u\"}}\n"
    );
    std::fs::write(&file, &text).unwrap();
    let finished = load(&["--targets", &file]);
    assert_eq!((finished.code, &*finished.stderr), (Some(0), ""), "{finished:?}");
    assert_eq!(finished.json()["statuses"]["200"], 90);
    let counts: Vec<u64> = finished.json()["by_class"]
        .as_array()
        .unwrap()
        .iter()
        .map(|class| class["sent"].as_u64().unwrap())
        .collect();
    // Each connection begins a new round by itself, and the last rounds are cut short.
    let is_even = counts.iter().all(|count| (27..=33).contains(count));
    assert!(is_even && counts.iter().sum::<u64>() == 90, "{counts:?}");
    std::fs::write(&file, text.replace("X-A: b", "X-A b")).unwrap();
    load(&["--targets", &file]).fails_with(2, &["targets.txt:3: 'X-A b' is not a header"]);
    load(&["--targets", &file, "http://a"]).fails_with(2, &["--targets", "cannot be used"]);
}
