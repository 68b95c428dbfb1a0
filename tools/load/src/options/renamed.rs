use clap::builder::NonEmptyStringValueParser;
use clap::builder::TypedValueParser;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches};
use serde::de::{Deserialize, Deserializer, Error as _};

/// Rejects options and keys that have been renamed. The error contains the new name.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RenamedOptions;

/// The options that have been renamed, with their new names.
const OPTIONS: [(&str, &str); 3] = [
    ("number", "-c (--connections)"),
    ("X", "-m (--method)"),
    ("tls-skip-certificate-check", "-k (--insecure)"),
];

impl Args for RenamedOptions {
    fn augment_args(command: Command) -> Command {
        command.args(OPTIONS.map(|(name, now)| {
            let refuse = move |_: String| Err::<String, _>(format!("it is {now} now"));
            let arg = Arg::new(name).hide(true).action(ArgAction::Set).num_args(0..=1);
            let arg = arg.default_missing_value("1").value_name("VALUE");
            let arg = arg.value_parser(NonEmptyStringValueParser::new().try_map(refuse));
            match name.len() {
                1 => arg.short(name.chars().next()),
                _ => arg.long(name),
            }
        }))
    }

    fn augment_args_for_update(command: Command) -> Command {
        RenamedOptions::augment_args(command)
    }
}

impl FromArgMatches for RenamedOptions {
    fn from_arg_matches(_: &ArgMatches) -> Result<RenamedOptions, Error> {
        Ok(RenamedOptions)
    }

    fn update_from_arg_matches(&mut self, _: &ArgMatches) -> Result<(), Error> {
        Ok(())
    }
}

impl<'de> Deserialize<'de> for RenamedOptions {
    fn deserialize<D: Deserializer<'de>>(_: D) -> Result<RenamedOptions, D::Error> {
        let text = "this key has been renamed: clients is connections now, headers is header, and \
                    tls-skip-certificate-check is insecure";
        Err(D::Error::custom(text))
    }
}
