//! The secret that annulus processes on different machines share. Each side proves to the other
//! that it knows the secret, without sending it.
//!
//! The client opens with a random number, and the server answers with another one. Each then sends
//! an HMAC-SHA256 of both numbers under the token. The server sends its proof only after it has
//! checked the client's.

use crate::frames;
use crate::text::printable;
use anyhow::{Context, Result, bail};
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

/// The minimum and maximum length of a token in bytes.
const TOKEN_BYTES: [usize; 2] = [16, 4096];
/// The maximum size of a message before the peer has proved that it knows the token.
pub(crate) const MAX_GREETING_BYTES: usize = 4096;
/// The version of all protocols that start with this handshake.
const VERSION: u32 = 1;

type Nonce = [u8; 32];

pub(crate) struct Token(hmac::Key);

/// Hides the secret.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

impl Token {
    /// Reads a token from a file. White space around it is ignored.
    pub(crate) fn read(path: &Path) -> Result<Token> {
        let read = || -> Result<Token> {
            let mut text = Vec::new();
            File::open(path)?.take(2 * TOKEN_BYTES[1] as u64).read_to_end(&mut text)?;
            Token::new(&text)
        };
        read().with_context(|| format!("cannot use the token in {}", path.display()))
    }

    /// Reads a token from an environment variable, if it is set.
    pub(crate) fn from_variable(name: &str) -> Result<Option<Token>> {
        let Some(value) = std::env::var_os(name) else { return Ok(None) };
        let token = Token::new(OsStr::as_encoded_bytes(&value));
        token.map(Some).with_context(|| format!("cannot use the token in the variable {name}"))
    }

    fn new(text: &[u8]) -> Result<Token> {
        let ([least, most], text) = (TOKEN_BYTES, text.trim_ascii());
        if !(least..=most).contains(&text.len()) {
            bail!(
                "it has {} bytes, but a token has {least} to {most}: create one with `openssl rand \
                 -hex 32`",
                text.len()
            );
        }
        Ok(Token(hmac::Key::new(hmac::HMAC_SHA256, text)))
    }

    /// Returns the bytes with which `side` proves that it knows the token.
    fn proof(&self, protocol: &str, side: Side, nonces: [&Nonce; 2]) -> Vec<u8> {
        hmac::sign(&self.0, &proven(protocol, side, nonces)).as_ref().to_vec()
    }

    /// Returns true if `proof` shows that `side` knows the token. Takes the same time for every
    /// proof of the right length.
    fn is_proof(&self, proof: &[u8], protocol: &str, side: Side, nonces: [&Nonce; 2]) -> bool {
        hmac::verify(&self.0, &proven(protocol, side, nonces), proof).is_ok()
    }
}

#[derive(Clone, Copy)]
enum Side {
    Client = 1,
    Server = 2,
}

/// Returns the bytes from which a proof is computed. A zero byte ends the protocol's name, so
/// different inputs give different bytes.
fn proven(protocol: &str, side: Side, [client, server]: [&Nonce; 2]) -> Vec<u8> {
    [protocol.as_bytes(), &[0, side as u8], client, server].concat()
}

/// The first message of a client.
#[derive(Deserialize, Serialize)]
struct Hello {
    protocol: String,
    version: u32,
    nonce: Nonce,
}

/// The messages after [`Hello`].
#[derive(Deserialize, Serialize)]
enum Greeting {
    Challenge(Nonce),
    Proof(Vec<u8>),
    Refused(String),
}

fn nonce() -> Result<Nonce> {
    let mut nonce = Nonce::default();
    let filled = SystemRandom::new().fill(&mut nonce);
    filled.ok().context("the system has no random numbers (getrandom)")?;
    Ok(nonce)
}

/// Performs the server's part of the handshake: checks that the client knows the token, and proves
/// that this side does.
///
/// # Errors
/// If the connection fails, or the client is refused.
pub(crate) fn accept(mut stream: impl Read + Write, protocol: &str, token: &Token) -> Result<()> {
    let hello: Hello = frames::read(&mut stream, MAX_GREETING_BYTES)?;
    let mut refuse = |text: String| -> Result<()> {
        // This side reports the error even if the client does not read it.
        let _ = frames::write(&mut stream, &Greeting::Refused(text.clone()));
        bail!(text)
    };
    if hello.protocol != protocol {
        return refuse(format!(
            "'{}' is not the protocol of this port, which is {protocol}",
            printable(&hello.protocol)
        ));
    }
    if hello.version != VERSION {
        return refuse(format!(
            "version {} of {protocol} is not version {VERSION}: use the same annulus on both sides",
            hello.version
        ));
    }
    let own = nonce()?;
    frames::write(&mut stream, &Greeting::Challenge(own))?;
    let proof = match frames::read(&mut stream, MAX_GREETING_BYTES)? {
        Greeting::Proof(proof) => proof,
        _ => bail!("it sent a message other than its proof of the token"),
    };
    let nonces = [&hello.nonce, &own];
    if !token.is_proof(&proof, protocol, Side::Client, nonces) {
        let text = "the token is wrong: give both sides the same one".to_owned();
        let _ = frames::write(&mut stream, &Greeting::Refused(text.clone()));
        bail!(text);
    }
    Ok(frames::write(&mut stream, &Greeting::Proof(token.proof(protocol, Side::Server, nonces)))?)
}

/// Performs the client's part of the handshake: proves that this side knows the token, and checks
/// that the server does.
///
/// # Errors
/// If the connection fails, the server refuses this side, or the server does not know the token.
pub(crate) fn connect(mut stream: impl Read + Write, protocol: &str, token: &Token) -> Result<()> {
    let own = nonce()?;
    let hello = Hello { protocol: protocol.to_owned(), version: VERSION, nonce: own };
    frames::write(&mut stream, &hello)?;
    let other = match frames::read(&mut stream, MAX_GREETING_BYTES)? {
        Greeting::Challenge(nonce) => nonce,
        Greeting::Refused(why) => bail!("it refuses: {}", printable(&why)),
        Greeting::Proof(_) => bail!("it sent its proof of the token too early"),
    };
    let nonces = [&own, &other];
    let proof = token.proof(protocol, Side::Client, nonces);
    frames::write(&mut stream, &Greeting::Proof(proof))?;
    match frames::read(&mut stream, MAX_GREETING_BYTES)? {
        Greeting::Proof(proof) if token.is_proof(&proof, protocol, Side::Server, nonces) => Ok(()),
        Greeting::Refused(why) => bail!("it refuses: {}", printable(&why)),
        _ => bail!("it does not know the token: give both sides the same one"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;
    use std::thread;

    fn token(text: &str) -> Token {
        Token::new(text.as_bytes()).unwrap()
    }

    /// Runs both sides and returns their results.
    fn greet(
        client: impl FnOnce(UnixStream) -> Result<()> + Send + 'static,
        server: impl FnOnce(UnixStream) -> Result<()>,
    ) -> [Result<(), String>; 2] {
        let (one, other) = UnixStream::pair().unwrap();
        let client = thread::spawn(move || client(one).map_err(|error| error.to_string()));
        let server = server(other).map_err(|error| error.to_string());
        [client.join().unwrap(), server]
    }

    const SECRET: &str = "0123456789abcdef";

    #[test]
    fn both_sides_with_the_same_token_agree() {
        let both = greet(
            |stream| connect(stream, "a", &token(SECRET)),
            |stream| accept(stream, "a", &token(" 0123456789abcdef\n")),
        );
        assert_eq!(both, [Ok(()), Ok(())]);
    }

    #[test]
    fn wrong_token_is_refused_on_both_sides() {
        let [client, server] = greet(
            |stream| connect(stream, "a", &token("0123456789abcdeF")),
            |stream| accept(stream, "a", &token(SECRET)),
        );
        assert!(client.unwrap_err().contains("it refuses: the token is wrong"));
        assert!(server.unwrap_err().contains("the token is wrong"));
    }

    /// A server without the token cannot pretend to know it, even by returning the client's proof.
    #[test]
    fn server_that_reflects_the_proof_is_refused() {
        let [client, _] = greet(
            |stream| connect(stream, "a", &token(SECRET)),
            |mut stream| {
                let hello: Hello = frames::read(&mut stream, MAX_GREETING_BYTES)?;
                frames::write(&mut stream, &Greeting::Challenge(hello.nonce))?;
                let proof: Greeting = frames::read(&mut stream, MAX_GREETING_BYTES)?;
                Ok(frames::write(&mut stream, &proof)?)
            },
        );
        assert!(client.unwrap_err().contains("does not know the token"));
    }

    #[test]
    fn other_protocols_and_versions_are_named() {
        let [client, server] = greet(
            |stream| connect(stream, "b", &token(SECRET)),
            |stream| accept(stream, "a", &token(SECRET)),
        );
        assert!(client.unwrap_err().contains("'b' is not the protocol of this port, which is a"));
        assert!(server.unwrap_err().contains("'b' is not the protocol"));
        let [_, server] = greet(
            |mut stream| {
                let hello = Hello { protocol: "a".into(), version: 9, nonce: [0; 32] };
                Ok(frames::write(&mut stream, &hello)?)
            },
            |stream| accept(stream, "a", &token(SECRET)),
        );
        assert!(server.unwrap_err().contains("version 9 of a is not version 1"));
    }

    #[test]
    fn tokens_outside_the_limits_are_refused() {
        for text in ["", "short", &"x".repeat(4097)] {
            let error = Token::new(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains("16 to 4096") && error.contains("openssl rand"), "{error}");
        }
        assert_eq!(format!("{:?}", token(SECRET)), "Token");
        let error = format!("{:#}", Token::read(Path::new("/no/such/file")).unwrap_err());
        assert!(error.contains("the token in /no/such/file"), "{error}");
    }
}
