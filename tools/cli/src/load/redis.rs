//! Options of Redis.

use super::target::Target;
use crate::usage::UsageError;
use annulus_load::{Mix, Redis, Resp};
use clap::Args;

/// Commands of Redis
#[derive(Args, Debug)]
#[command(next_help_heading = "Redis, for targets redis:// and with --redis")]
pub(super) struct RedisArgs {
    /// A command, such as 'GET key:{random 1 1000}'; may be repeated, with
    /// weights: '9*GET a' '1*SET a b' [default: PING]
    #[arg(long = "redis", value_name = "COMMAND")]
    commands: Vec<String>,
    /// Ask for replies in RESP3 (HELLO 3)
    #[arg(long)]
    resp3: bool,
}

impl RedisArgs {
    pub(super) fn has_commands(&self) -> bool {
        !self.commands.is_empty()
    }

    /// Which options were given.
    pub(super) fn given(&self) -> [(&'static str, bool); 2] {
        [("--redis", self.has_commands()), ("--resp3", self.resp3)]
    }

    /// The commands for a target.
    pub(super) fn requests(self, target: &Target) -> Result<Redis, UsageError> {
        let mut redis = Redis::new("PING");
        if !self.commands.is_empty() {
            redis.commands =
                Mix::parse(&self.commands).map_err(|error| UsageError(error.to_string()))?;
        }
        redis.resp = if self.resp3 { Resp::V3 } else { Resp::V2 };
        redis.login = target.login.clone();
        redis.database = match target.path.trim_matches('/') {
            "" => None,
            number => Some(number.parse().map_err(|_| {
                UsageError(format!(
                    "the database '{number}' is none: write a number, such as {}/0",
                    target.authority
                ))
            })?),
        };
        redis.validate().map_err(|error| UsageError(error.to_string()))?;
        Ok(redis)
    }
}
