//! The command line of the TLS server examples.

use std::process::exit;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Arguments {
    pub(crate) address: String,
    /// The certificate and key files.
    pub(crate) files: Option<(String, String)>,
    #[allow(dead_code, reason = "not every example has this option")]
    pub(crate) plain: Option<String>,
}

impl Arguments {
    /// Parses the arguments of this process. If they are invalid, prints an error and exits with
    /// status 2.
    pub(crate) fn of_process(has_plain: bool) -> Self {
        Self::parse(std::env::args().skip(1), has_plain).unwrap_or_else(|text| {
            let plain = if has_plain { " [--plain ADDRESS]" } else { "" };
            eprintln!("{text}\nusage: [ADDRESS] [--cert FILE --key FILE]{plain}");
            exit(2)
        })
    }

    fn parse(arguments: impl Iterator<Item = String>, has_plain: bool) -> Result<Self, String> {
        let (mut address, mut cert, mut key, mut plain) = (None, None, None, None);
        let mut arguments = arguments;
        while let Some(argument) = arguments.next() {
            let option = match argument.as_str() {
                "--cert" => &mut cert,
                "--key" => &mut key,
                "--plain" if has_plain => &mut plain,
                name if name.starts_with('-') => return Err(format!("{name}: unknown option")),
                _ if address.is_some() => {
                    return Err(format!("{argument}: the address was already given"));
                }
                _ => {
                    address = Some(argument);
                    continue;
                }
            };
            let value = arguments.next().filter(|value| !value.starts_with("--"));
            let value = value.ok_or_else(|| format!("{argument}: the value is missing"))?;
            if option.replace(value).is_some() {
                return Err(format!("{argument}: given twice"));
            }
        }
        let files = match (cert, key) {
            (Some(cert), Some(key)) => Some((cert, key)),
            (None, None) => None,
            (Some(_), None) => return Err("--cert without --key: both are needed".into()),
            (None, Some(_)) => return Err("--key without --cert: both are needed".into()),
        };
        let address = address.unwrap_or_else(|| "127.0.0.1:8443".into());
        Ok(Self { address, files, plain })
    }
}
