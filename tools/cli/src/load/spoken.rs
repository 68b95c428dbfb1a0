//! The protocol spoken with a target: as its scheme and the options say.

use super::http::HttpArgs;
use super::redis::RedisArgs;
use super::script::ScriptArgs;
use super::target::Target;
use super::tls::TlsArgs;
use crate::usage::{UsageError, only_with};
use annulus_load::{Protocol, Tls};
use anyhow::Result;
use clap::Args;

/// Options of every protocol.
#[derive(Args, Debug)]
pub(super) struct ProtocolArgs {
    #[command(flatten)]
    http: HttpArgs,
    #[command(flatten)]
    redis: RedisArgs,
    #[command(flatten)]
    script: ScriptArgs,
    #[command(flatten)]
    tls: TlsArgs,
}

/// The protocols that options can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Echo,
    Http,
    Redis,
    Script,
}

impl ProtocolArgs {
    /// The protocol for a target, and how its connections are encrypted.
    ///
    /// # Errors
    /// For options that mean nothing with it, and for those that contradict each other.
    pub(super) fn resolve(self, target: &Target) -> Result<(Protocol, Option<Tls>)> {
        let kind = self.kind(target)?;
        self.check_options(kind, target)?;
        let ProtocolArgs { http, redis, script, tls } = self;
        let tls = tls.is_on(target).then(|| tls.settings(target)).transpose()?;
        let is_h2 = http.is_h2();
        let protocol = match kind {
            Kind::Echo => Protocol::Echo,
            Kind::Http if is_h2 => Protocol::Http2(http.requests(target)?),
            Kind::Http => Protocol::Http(http.requests(target)?),
            Kind::Redis => Protocol::Redis(redis.requests(target)?),
            Kind::Script => Protocol::Script(script.requests()?),
        };
        Ok((protocol, tls))
    }

    fn kind(&self, target: &Target) -> Result<Kind, UsageError> {
        let asked = [
            (Kind::Http, "a target of HTTP", target.scheme.is_http()),
            (Kind::Redis, "a target of Redis", target.scheme.is_redis()),
            (Kind::Redis, "--redis", self.redis.has_commands()),
            (Kind::Script, "--send", self.script.has_request()),
        ];
        let mut asked = asked.iter().filter(|(_, _, is_asked)| *is_asked);
        let Some(&(kind, what, _)) = asked.next() else { return Ok(Kind::Echo) };
        match asked.find(|(other, _, _)| *other != kind) {
            Some((_, other, _)) => Err(UsageError(format!(
                "{target}: {what} and {other} are two protocols: leave one out"
            ))),
            None => Ok(kind),
        }
    }

    fn check_options(&self, kind: Kind, target: &Target) -> Result<(), UsageError> {
        only_with("a target http://… or https://…", kind == Kind::Http, &self.http.given())?;
        only_with("--redis or a target redis://…", kind == Kind::Redis, &self.redis.given())?;
        only_with("--send or --send-file", kind == Kind::Script, &self.script.given())?;
        let is_encrypted = self.tls.is_on(target);
        only_with(
            "--tls or a target https://…, rediss://… or tls://…",
            is_encrypted,
            &self.tls.given(),
        )?;
        match &target.login {
            Some(_) if kind != Kind::Redis => Err(UsageError(format!(
                "{target}: a user and a password in front of @ are for Redis: leave them out{}",
                if kind == Kind::Http { ", and add -H 'Authorization: …'" } else { "" }
            ))),
            _ => Ok(()),
        }
    }
}

/// Checks options for echo only: if they are given, they are errors with another protocol.
pub(super) fn only_for_echo(
    protocol: &Protocol,
    options: &[(&str, bool)],
) -> Result<(), UsageError> {
    let given = options.iter().find(|(_, given)| *given);
    match (protocol, given) {
        (Protocol::Echo, _) | (_, None) => Ok(()),
        (_, Some((option, _))) => Err(UsageError(format!(
            "{option} is for echo, and means nothing with {}: leave it out",
            protocol.name()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use annulus_load::{Framing, Http, HttpRequest, Resp, Template, Trust};
    use clap::Parser;

    #[derive(Parser)]
    struct Command {
        target: Target,
        #[command(flatten)]
        protocol: ProtocolArgs,
    }

    fn resolve(args: &[&str]) -> Result<(Protocol, Option<Tls>), String> {
        let args = ["load"].iter().chain(args);
        let command = Command::try_parse_from(args).map_err(|error| error.to_string())?;
        command.protocol.resolve(&command.target).map_err(|error| format!("{error:#}"))
    }

    fn http(args: &[&str]) -> Http {
        match resolve(args).unwrap().0 {
            Protocol::Http(http) | Protocol::Http2(http) => http,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_scheme_and_the_options_say_what_is_spoken() {
        for (args, name) in [
            (&["127.0.0.1:7"][..], "echo"),
            (&["unix:/x"], "echo"),
            (&["http://a"], "HTTP/1.1"),
            (&["https://a", "--h2"], "HTTP/2"),
            (&["redis://a"], "Redis"),
            (&["a:1", "--redis", "GET a"], "Redis"),
            (&["unix:/x", "--redis", "GET a"], "Redis"),
            (&["tls://a:1", "--send", r"x\n", "--reply-until", r"\n"], "script"),
        ] {
            let (protocol, tls) = resolve(args).unwrap();
            assert_eq!(protocol.name(), name, "{args:?}");
            assert_eq!(tls.is_some(), args[0].starts_with("https") || args[0].starts_with("tls"));
        }
    }

    #[test]
    fn options_that_mean_nothing_are_refused() {
        for (args, part) in [
            (&["a:1", "-H", "a: b"][..], "--header does nothing without a target http://"),
            (&["redis://a", "--h2"], "--h2 does nothing without a target http://"),
            (&["http://a", "--resp3"], "--resp3 does nothing without --redis"),
            (&["a:1", "--expect", "x"], "--expect does nothing without --send"),
            (
                &["http://a", "--tls-server-name", "b"],
                "--tls-server-name does nothing without --tls",
            ),
            (&["a:1", "--tls-skip-certificate-check"], "does nothing without --tls"),
            (&["http://a", "--redis", "GET a"], "a target of HTTP and --redis are two protocols"),
            (&["redis://a", "--send", "x"], "a target of Redis and --send are two protocols"),
            (&["http://me:pw@a"], "add -H 'Authorization: …'"),
            (&["a:1", "--send", "x"], "nothing says where a reply ends"),
            (&["a:1", "--send", r"\q", "--reply-length", "1"], r"\q is no escape"),
            (
                &["a:1", "--send", "x", "--expect", "y", "--reply-until", "z"],
                "not exactly one reply",
            ),
            (&["a:1", "--send", "x", "--reply-length-field", "u7"], "'u7' is no length field"),
            (&["http://a", "-H", "ab"], "no colon"),
            (&["http://a", "-X", "G T"], "'G T' is no method"),
            (&["http://a", "--request", "GET b"], "\"b\" cannot be asked for"),
            (&["http://a", "--request", "GET"], "the request 'GET' has no path"),
            (
                &["http://a", "--request", "GET /a {n"],
                "the body: the field '{n' at character 1 has no end",
            ),
            (&["http://a/b", "--request", "/a"], "http://a/b has a path, and so have requests"),
            (&["http://a/{n"], "'{n' at character 2 has no end"),
            (&["http://a", "--body-template", "{m}"], "'{m}' at character 1 is not known"),
            (&["http://a", "--request", "0*/a"], "the weight 0"),
            (&["a:1", "--send", "x", "--expect", "{n}"], "nothing says where a reply ends"),
            (&["a:1", "--send", "x{n", "--reply-length", "1"], "'{n' at character 2 has no end"),
            (
                &["a:1", "--send", "x", "--expect", "a", "--expect", "b"],
                "2 times --expect for 1 requests",
            ),
            (&["http://a", "--body-file", "/nowhere/x"], "cannot read /nowhere/x"),
            (&["redis://a/x"], "the database 'x' is none"),
            (&["redis://a", "--redis", "GET 'a"], "the quotation 'a at character 5 has no end"),
            (&["https://a", "--tls-ca", "/nowhere/x"], "cannot be read from /nowhere/x"),
            (&["http://a", "--h2", "-H", "Connection: close"], "HTTP/2 has no header Connection"),
        ] {
            let error = resolve(args).unwrap_err();
            assert!(error.contains(part), "{args:?}: {error}");
        }
    }

    #[test]
    fn requests_are_made_of_the_options() {
        let http = self::http(&["http://a:8080/x?y#z", "-H", "Accept:  */*", "-d", "{}"]);
        assert_eq!(http.authority, "a:8080");
        let body = Some(Template::constant("{}"));
        assert_eq!(
            http.requests.entries(),
            [HttpRequest { body, ..HttpRequest::new("POST", "/x?y") }]
        );
        assert_eq!(http.headers, [("Accept".to_owned(), "*/*".to_owned())]);
        assert_eq!(self::http(&["http://a", "-X", "HEAD"]).requests.entries()[0].method, "HEAD");
        let mixed =
            ["http://a", "--request", "3*/{random 1 9}", "--request", "PUT /{random 1 9} {{ {n} }"];
        let requests = self::http(&mixed).requests;
        assert_eq!(requests.shares().collect::<Vec<_>>(), [0.75, 0.25]);
        let body = Some("{{ {n} }".parse().unwrap());
        assert_eq!(requests.entries()[0], HttpRequest::new("GET", "/{random 1 9}"));
        assert_eq!(
            requests.entries()[1],
            HttpRequest { body, ..HttpRequest::new("PUT", "/{random 1 9}") }
        );

        let (protocol, _) =
            resolve(&["redis://u:p@a/2", "--redis", "2*GET a", "--redis", "GET b", "--resp3"])
                .unwrap();
        let Protocol::Redis(redis) = protocol else { panic!("{protocol:?}") };
        assert_eq!(
            (redis.commands.entries(), redis.resp),
            (&["GET a".to_owned(), "GET b".to_owned()][..], Resp::V3)
        );
        assert_eq!((redis.login, redis.database), (Some((Some("u".into()), "p".into())), Some(2)));

        let (protocol, _) =
            resolve(&["a:1", "--send", r"x{n}\n", "--send", "y", "--expect", r"y\n"]).unwrap();
        let Protocol::Script(script) = protocol else { panic!("{protocol:?}") };
        assert_eq!((script.requests.entries().len(), script.framing), (2, Framing::Fixed(2)));
        let expected = script.requests.entries().iter().map(|request| request.expected.clone());
        assert!(expected.eq([Some(Template::constant("y\n")), Some(Template::constant("y\n"))]));
    }

    #[test]
    fn certificates_are_for_the_host_unless_another_name_is_given() {
        let tls = |args: &[&str]| resolve(args).unwrap().1.unwrap();
        let skip = "--tls-skip-certificate-check";
        assert_eq!(tls(&["https://a.example:8443", skip]).server_name, "a.example");
        assert_eq!(tls(&["https://[::1]", skip]).server_name, "::1");
        assert_eq!(tls(&["127.0.0.1:1", "--tls", skip]).server_name, "127.0.0.1");
        let named = tls(&["https://127.0.0.1", skip, "--tls-server-name", "b"]);
        assert_eq!((named.server_name.as_str(), named.trust), ("b", Trust::Unchecked));
        let error = resolve(&["unix:/x", "--tls", skip]).unwrap_err();
        assert!(error.contains("--tls-server-name"), "{error}");
    }
}
