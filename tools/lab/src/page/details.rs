//! Details of a run other than its figures, such as the machine, the commands and the missing
//! contenders.

use annulus_page::{Block, Table, text};

use super::Document;
use crate::environment::Environment;
use crate::process::Spec;

/// Returns a table of names and values, without empty values.
fn facts(rows: impl IntoIterator<Item = (String, String)>) -> Block {
    let rows = rows.into_iter().filter(|(_, value)| !value.is_empty());
    Block::Table(Table {
        head: Vec::new(),
        rows: rows.map(|(name, value)| vec![name, value]).collect(),
    })
}

fn line(words: &[String]) -> String {
    words.iter().map(|word| text::quoted(word)).collect::<Vec<_>>().join(" ")
}

impl Document<'_> {
    /// Returns the missing contenders, with how to install each.
    pub(super) fn missing(&self) -> Vec<Block> {
        self.report.settings.contenders.missing.iter().cloned().map(Block::Text).collect()
    }

    /// Returns the verdict on each cell in words.
    pub(super) fn verdicts(&self) -> Option<Block> {
        let row = |verdict: &crate::bench::CellVerdict| {
            vec![verdict.cell.to_string(), verdict.text.clone()]
        };
        let rows: Vec<Vec<String>> = self.report.verdicts.iter().map(row).collect();
        (!rows.is_empty()).then(|| Block::Table(Table { head: Vec::new(), rows }))
    }

    /// Returns the command, the commands of the contenders, and the plan.
    pub(super) fn commands(&self) -> Vec<Block> {
        let settings = &self.report.settings;
        let command = line(&self.report.environment.command_line);
        let contenders = settings
            .contenders
            .specs
            .iter()
            .map(|spec: &Spec| (spec.name.clone(), line(&spec.command())));
        let rounds = &settings.plan.rounds;
        let count = |count: usize| text::number(count as f64);
        let most = if rounds.most > rounds.least {
            format!(" to {}", count(rounds.most))
        } else {
            String::new()
        };
        let precise = rounds.precision.as_ref().map(|precision| {
            format!("± {} of {}", text::number(precision.half_width), precision.metric)
        });
        let until_decided = if rounds.until_decided { "decided" } else { "" };
        let parameters = settings.parameters.iter().map(|(name, value)| {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            (name.replace('_', " "), value)
        });
        let plan = [
            ("rounds".to_owned(), count(rounds.least) + &most),
            ("until intervals are".to_owned(), precise.unwrap_or_default()),
            ("until verdicts are".to_owned(), until_decided.to_owned()),
            ("slices".to_owned(), settings.terms.trim().trim_start_matches("of ").to_owned()),
            ("seed".to_owned(), settings.plan.seed.to_string()),
        ];
        vec![Block::Code(command), facts(contenders), facts(plan.into_iter().chain(parameters))]
    }

    /// Returns facts about the machine and the time of the run, and for a suite, about the document
    /// with the published figures.
    pub(super) fn host(&self) -> Vec<Block> {
        let Environment {
            kernel,
            architecture,
            cpu,
            cores,
            mitigations,
            version,
            commit,
            profile,
            debug_build,
            variables,
            load_average,
            time,
            ..
        } = &self.report.environment;
        let list = |items: Vec<String>| items.join("; ");
        let pairs = |map: &std::collections::BTreeMap<String, String>| {
            list(map.iter().map(|(name, value)| format!("{name}: {value}")).collect())
        };
        let cores: Vec<String> = cores.iter().map(ToString::to_string).collect();
        let debug = debug_build.then_some("a debug build");
        let built = [commit.as_deref(), profile.as_deref(), debug].into_iter().flatten();
        let built = built.collect::<Vec<_>>().join(", ");
        let built = if built.is_empty() { built } else { format!(" ({built})") };
        let here = [
            ("began", time.clone()),
            ("kernel", format!("Linux {kernel}")),
            ("processor", format!("{cpu} ({architecture})")),
            ("cores", cores.join(", ")),
            ("load average at the start", load_average.clone()),
            ("annulus", format!("{version}{built}")),
            ("variables", pairs(variables)),
            ("mitigations", pairs(mitigations)),
        ];
        let here = here.map(|(name, value)| (name.to_owned(), value));
        let mut blocks = vec![facts(here)];
        if let Some(suite) = self.suite {
            blocks.push(Block::Text("The published figures:".into()));
            let published = [
                ("document".to_owned(), suite.suite.document.clone()),
                ("machine".to_owned(), suite.suite.machine.join("; ")),
            ];
            blocks.push(facts(published));
            blocks.push(Block::Code(suite.suite.commands.join("\n")));
        }
        blocks
    }
}
