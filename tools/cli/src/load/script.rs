//! Options of requests that the user wrote.

use crate::usage::UsageError;
use annulus_load::{
    Framing, LengthField, Mix, Script, ScriptRequest, Template, script_bytes, script_template,
};
use anyhow::{Context, Result};
use clap::{ArgGroup, Args};
use std::path::{Path, PathBuf};

/// Requests of any simple protocol
#[derive(Args, Debug)]
#[command(next_help_heading = "Other protocols, for targets HOST:PORT, tcp://, tls:// and unix:",
    group = ArgGroup::new("framing").args(["reply_until", "reply_length", "reply_length_field"]))]
pub(super) struct ScriptArgs {
    /// A request, with escapes such as \r\n and \x00, and fields such as
    /// {client}; may be repeated, with weights: '9*a' '1*b'
    #[arg(long, value_name = "TEXT", conflicts_with = "send_file")]
    send: Vec<String>,
    /// A file with the request, as it is
    #[arg(long, value_name = "FILE")]
    send_file: Option<PathBuf>,
    /// The whole reply, with escapes and fields, for all requests or one for
    /// each; others are counted as errors
    #[arg(long, value_name = "TEXT", conflicts_with = "expect_file")]
    expect: Vec<String>,
    /// A file with the whole reply, as it is
    #[arg(long, value_name = "FILE")]
    expect_file: Option<PathBuf>,
    /// A reply ends with these bytes, with escapes, such as \n
    #[arg(long, value_name = "TEXT")]
    reply_until: Option<String>,
    /// A reply has so many bytes [default: as many as the expected one]
    #[arg(long, value_name = "BYTES")]
    reply_length: Option<usize>,
    /// A reply begins with a field that counts the bytes behind it: u8, u16be,
    /// u32le and so on; @OFFSET if it is not at the start, +N or -N if it counts
    /// others
    #[arg(long, value_name = "FIELD")]
    reply_length_field: Option<LengthField>,
}

impl ScriptArgs {
    pub(super) fn has_request(&self) -> bool {
        !self.send.is_empty() || self.send_file.is_some()
    }

    /// The options that need a request, and which of them were given.
    pub(super) fn given(&self) -> [(&'static str, bool); 5] {
        [
            ("--expect", !self.expect.is_empty()),
            ("--expect-file", self.expect_file.is_some()),
            ("--reply-until", self.reply_until.is_some()),
            ("--reply-length", self.reply_length.is_some()),
            ("--reply-length-field", self.reply_length_field.is_some()),
        ]
    }

    /// The requests, and what answers them.
    pub(super) fn requests(self) -> Result<Script> {
        let expected = templates(&self.expect, self.expect_file.as_deref())?;
        let framing = self.framing(&expected)?;
        let requests = self.mix(expected)?;
        let script = Script { requests, framing };
        script.validate().map_err(usage)?;
        Ok(script)
    }

    fn framing(&self, expected: &[Template]) -> Result<Framing, UsageError> {
        if let Some(until) = &self.reply_until {
            return Ok(Framing::Delimiter(script_bytes(until).map_err(usage)?));
        }
        if let Some(field) = self.reply_length_field {
            return Ok(Framing::LengthField(field));
        }
        let mut lengths = expected.iter().map(|reply| reply.as_constant().map(<[u8]>::len));
        let first = lengths.next().flatten();
        let all = first.filter(|_| lengths.all(|length| length == first));
        self.reply_length.or(all).map(Framing::Fixed).ok_or_else(|| {
            let text = "nothing says where a reply ends: add --reply-until, --reply-length, --reply-length-field, or \
                        --expect without fields and of one length";
            UsageError(text.into())
        })
    }

    fn mix(self, expected: Vec<Template>) -> Result<Mix<ScriptRequest>> {
        let requests = match &self.send_file {
            Some(path) => Mix::new([(1.0, Template::constant(read(path)?))]).map_err(usage)?,
            None => Mix::parse(&self.send)
                .map_err(usage)?
                .try_map(|text| script_template(&text))
                .map_err(usage)?,
        };
        let count = requests.entries().len();
        let mut expected: Box<dyn Iterator<Item = Option<Template>>> = match expected.len() {
            0 => Box::new(std::iter::repeat(None)),
            1 => Box::new(std::iter::repeat(expected.into_iter().next())),
            replies if replies == count => Box::new(expected.into_iter().map(Some)),
            replies => {
                let text = format!(
                    "{replies} times --expect for {count} requests: give one for each, or one for all"
                );
                return Err(UsageError(text).into());
            }
        };
        let mut request = |request| ScriptRequest { request, expected: expected.next().flatten() };
        Ok(requests.try_map(|template| Ok::<_, UsageError>(request(template)))?)
    }
}

/// Texts with escapes and fields, or the bytes of a file.
fn templates(texts: &[String], file: Option<&Path>) -> Result<Vec<Template>> {
    if let Some(path) = file {
        return Ok(vec![Template::constant(read(path)?)]);
    }
    Ok(texts.iter().map(|text| script_template(text)).collect::<Result<_, _>>().map_err(usage)?)
}

fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

fn usage(error: impl std::fmt::Display) -> UsageError {
    UsageError(error.to_string())
}
