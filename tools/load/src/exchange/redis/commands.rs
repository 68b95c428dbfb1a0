//! The commands of a run.

use crate::mix::{Fill, Mix, MixError, Template, TemplateError};

/// Commands of Redis: [`Template`]s, whose words are split as [`Template::words`] does.
///
/// ```
/// use annulus_load::Redis;
///
/// let redis = Redis::new("GET key:{random 1 1000}");
/// assert_eq!(redis.validate(), Ok(()));
/// assert!(Redis::new("GET key:{n").validate().unwrap_err().to_string().contains("has no end"));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Redis {
    /// The commands, of which each client draws the next one.
    pub commands: Mix<String>,
    /// The version of the replies.
    pub resp: Resp,
    /// The user, and the password: of the user `default` if there is no name.
    pub login: Option<(Option<String>, String)>,
    /// The database; 0 if there is none.
    pub database: Option<u32>,
}

/// The version of Redis's protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Resp {
    /// The version that every server speaks.
    #[default]
    V2,
    /// Since Redis 6: asked for with `HELLO 3`.
    V3,
}

impl Redis {
    /// One command.
    pub fn new(command: impl Into<String>) -> Redis {
        let commands = Mix::new([(1.0, command.into())]).expect("a weight that is a constant");
        Redis { commands, resp: Resp::V2, login: None, database: None }
    }

    /// Checks that each command can be split into words.
    ///
    /// # Errors
    /// Names the first command that cannot, and what is wrong with it.
    pub fn validate(&self) -> Result<(), RedisError> {
        Commands::new(self).map(drop)
    }

    /// The commands at the start of a connection, and their number.
    fn start(&self) -> (Vec<u8>, usize) {
        let mut start = Vec::new();
        let mut add = |words: &[&str]| encode(words, &mut start);
        let mut count = 0;
        // A server with a password takes no other command before.
        if let Some((user, password)) = &self.login {
            match user {
                Some(user) => add(&["AUTH", user, password]),
                None => add(&["AUTH", password]),
            }
            count += 1;
        }
        if self.resp == Resp::V3 {
            add(&["HELLO", "3"]);
            count += 1;
        }
        if let Some(database) = self.database {
            add(&["SELECT", &database.to_string()]);
            count += 1;
        }
        (start, count)
    }
}

/// A command that cannot be sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RedisError {
    /// A command without a word.
    #[error("the command '{0}' has no word: write one such as GET key")]
    Empty(String),
    /// A command that is no template.
    #[error("the command {command}: {error}")]
    Template {
        /// The command.
        command: String,
        /// The error in the command.
        error: TemplateError,
    },
    /// No command, or one without a weight.
    #[error(transparent)]
    Mix(MixError),
}

/// The commands of a run, made once for all clients of a thread.
#[derive(Debug)]
pub(crate) struct Commands {
    start: (Vec<u8>, usize),
    mix: Mix<Command>,
}

/// One kind of command.
#[derive(Debug)]
enum Command {
    /// Always the same bytes.
    Constant(Vec<u8>),
    /// Words with fields.
    Words(Vec<Template>),
}

impl Commands {
    /// # Errors
    /// As [`Redis::validate`].
    pub(crate) fn new(redis: &Redis) -> Result<Commands, RedisError> {
        let mix = redis.commands.clone().try_map(parse)?;
        Ok(Commands { start: redis.start(), mix })
    }

    /// Writes the commands at the start of a connection; returns their number.
    pub(super) fn start(&self, out: &mut Vec<u8>) -> usize {
        let (bytes, count) = &self.start;
        out.extend_from_slice(bytes);
        *count
    }

    /// Appends the next command of a client; returns its index in the mix.
    pub(super) fn write(&self, fill: &mut Fill, out: &mut Vec<u8>) -> usize {
        let index = fill.draw(&self.mix);
        match &self.mix.entries()[index] {
            Command::Constant(bytes) => out.extend_from_slice(bytes),
            Command::Words(words) => {
                let written = |word: &Template| {
                    let mut bytes = Vec::new();
                    word.write(fill, &mut bytes);
                    bytes
                };
                encode(&words.iter().map(written).collect::<Vec<_>>(), out);
            }
        }
        fill.next_request();
        index
    }
}

fn parse(command: String) -> Result<Command, RedisError> {
    let words = Template::words(&command)
        .map_err(|error| RedisError::Template { command: command.clone(), error })?;
    if words.is_empty() {
        return Err(RedisError::Empty(command));
    }
    let constant: Option<Vec<&[u8]>> = words.iter().map(Template::as_constant).collect();
    let Some(constant) = constant else { return Ok(Command::Words(words)) };
    let mut bytes = Vec::new();
    encode(&constant, &mut bytes);
    Ok(Command::Constant(bytes))
}

/// A command as an array of strings.
fn encode<W: AsRef<[u8]>>(words: &[W], out: &mut Vec<u8>) {
    out.extend(format!("*{}\r\n", words.len()).bytes());
    for word in words.iter().map(AsRef::as_ref) {
        out.extend(format!("${}\r\n", word.len()).bytes());
        out.extend(word);
        out.extend(b"\r\n");
    }
}
