//! Values that are chosen by name: on a command line, in the environment or in a file.

use std::fmt;

/// The error for an unknown name. Its message lists the known names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownName {
    what: &'static str,
    name: String,
    known: &'static [&'static str],
}

impl UnknownName {
    pub(crate) fn new(what: &'static str, name: &str, known: &'static [&'static str]) -> Self {
        Self { what, name: name.into(), known }
    }
}

impl fmt::Display for UnknownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, name, known } = self;
        write!(f, "unknown {what} `{name}`; choose one of {}", known.join(", "))
    }
}

impl std::error::Error for UnknownName {}

/// Names the values of an enum: defines `ALL`, `Display` and `FromStr`. Error messages call a value
/// by the second argument, such as "driver".
macro_rules! named {
    ($type:ident, $what:literal, { $($name:literal => $variant:ident),+ $(,)? }) => {
        impl $type {
            /// All values, with their names.
            pub const ALL: [(&'static str, Self); [$($name),+].len()] =
                [$(($name, Self::$variant)),+];
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(match self {
                    $(Self::$variant => $name),+
                })
            }
        }

        impl std::str::FromStr for $type {
            type Err = $crate::UnknownName;

            fn from_str(name: &str) -> Result<Self, Self::Err> {
                match name {
                    $($name => Ok(Self::$variant),)+
                    _ => Err($crate::UnknownName::new($what, name, &[$($name),+])),
                }
            }
        }
    };
}

pub(crate) use named;

#[cfg(test)]
mod tests {
    use crate::DriverChoice;
    use crate::file_policy::Policy;
    use crate::shards::Spread;
    use std::fmt::{Debug, Display};
    use std::str::FromStr;

    fn names_round_trip<T>(all: &[(&str, T)])
    where
        T: FromStr<Err = super::UnknownName> + Display + PartialEq + Debug,
    {
        for (name, value) in all {
            assert_eq!(name.parse().as_ref(), Ok(value));
            assert_eq!(value.to_string(), *name);
            assert_eq!(format!("{value:>12}"), format!("{name:>12}"));
        }
        let error = "iocp".parse::<T>().unwrap_err().to_string();
        assert!(
            error.contains("`iocp`") && all.iter().all(|(name, _)| error.contains(name)),
            "{error}"
        );
    }

    #[test]
    fn names_round_trip_and_unknown_name_lists_known_names() {
        names_round_trip(&DriverChoice::ALL);
        names_round_trip(&Policy::ALL);
        names_round_trip(&Spread::ALL);
        let error = "iocp".parse::<DriverChoice>().unwrap_err().to_string();
        assert_eq!(error, "unknown driver `iocp`; choose one of auto, uring, epoll");
    }
}
