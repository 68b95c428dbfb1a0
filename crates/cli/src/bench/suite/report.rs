//! A suite as it was published and as it was measured.

use super::plan::Plan;
use annulus_lab::environment::Environment;
use annulus_lab::suite::{Kind, Question, Suite, Table};
use serde::Serialize;
use serde_json::Value;

/// What was measured: a figure for each question and server.
#[derive(Clone, Debug, Default)]
pub(super) struct Answers {
    figures: Vec<(Question, String, f64)>,
    /// What could not be had or was left out, and why.
    pub(super) notes: Vec<String>,
    /// The comparison that the figures are from, with all its rounds.
    pub(super) comparison: Option<Value>,
}

impl Answers {
    /// Tells once what could not be had.
    pub(super) fn note(&mut self, why: String) {
        if !self.notes.contains(&why) {
            self.notes.push(why);
        }
    }

    /// Asks `figure` for every question of a suite and each of its servers.
    pub(super) fn fill(&mut self, suite: &Suite, figure: impl Fn(&Question, &str) -> Option<f64>) {
        for question in suite.questions() {
            for server in &question.servers {
                if let Some(value) = figure(&question, server) {
                    self.figures.push((question.clone(), server.clone(), value));
                }
            }
        }
    }

    /// Takes over what a comparison says beside its figures: its doubts, what failed, and itself.
    pub(super) fn take(
        &mut self,
        doubts: &[String],
        failures: impl Iterator<Item = (String, Option<String>)>,
        comparison: &impl Serialize,
    ) {
        doubts.iter().for_each(|doubt| self.note(doubt.clone()));
        for (who, why) in failures {
            self.note(format!("{who}: {}", why.unwrap_or_default()));
        }
        self.comparison = serde_json::to_value(comparison).ok();
    }

    /// Takes over what a report says beside its figures.
    pub(super) fn take_report(&mut self, report: &annulus_lab::bench::Report) {
        report.doubts.iter().cloned().chain(report.failures()).for_each(|note| self.note(note));
        for row in &report.results {
            if let Some(lost) = row.value("lost").filter(|lost| *lost > 0.0) {
                let (contender, cell) = (&row.contender, &row.cell);
                self.note(format!("{contender} at {cell}: {lost} datagrams were lost"));
            }
        }
        self.comparison = serde_json::to_value(report).ok();
    }

    fn get(&self, question: &Question, server: &str) -> Option<f64> {
        let found = self.figures.iter().find(|(q, s, _)| q == question && s == server);
        found.map(|&(_, _, value)| value)
    }
}

/// Everything a run has to say.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) suite: String,
    pub(super) title: String,
    pub(super) document: String,
    pub(super) kind: Kind,
    /// What it was measured on when it was published, and by which commands.
    pub(super) machine: Vec<String>,
    pub(super) commands: Vec<String>,
    pub(super) quick: bool,
    pub(super) rounds: usize,
    pub(super) server_core: usize,
    pub(super) load_core: usize,
    pub(super) seed: u64,
    pub(super) environment: Environment,
    pub(super) tables: Vec<TableReport>,
    pub(super) notes: Vec<String>,
    pub(super) comparison: Option<Value>,
}

#[derive(Debug, Serialize)]
pub(super) struct TableReport {
    pub(super) title: String,
    pub(super) unit: String,
    pub(super) corner: String,
    pub(super) caption: Option<String>,
    pub(super) columns: Vec<String>,
    pub(super) rows: Vec<RowReport>,
}

#[derive(Debug, Serialize)]
pub(super) struct RowReport {
    pub(super) name: String,
    /// Decimals of each column.
    #[serde(skip)]
    pub(super) places: Vec<usize>,
    pub(super) published: Vec<Option<f64>>,
    pub(super) measured: Vec<Measured>,
}

/// One server's figures in a row; that of nobody in particular where each column has its own.
#[derive(Debug, Serialize)]
pub(super) struct Measured {
    pub(super) server: Option<String>,
    pub(super) figures: Vec<Option<f64>>,
}

impl Report {
    pub(super) fn new(
        name: &str,
        suite: &Suite,
        plan: &Plan,
        environment: Environment,
        answers: Answers,
    ) -> Report {
        Report {
            suite: name.to_owned(),
            title: suite.title.clone(),
            document: suite.document.clone(),
            kind: suite.kind,
            machine: suite.machine.clone(),
            commands: suite.commands.clone(),
            quick: plan.quick,
            rounds: plan.rounds(),
            server_core: plan.cores.server,
            load_core: plan.cores.load,
            seed: plan.seed,
            environment,
            tables: suite.tables.iter().map(|table| TableReport::new(table, &answers)).collect(),
            notes: answers.notes,
            comparison: answers.comparison,
        }
    }

    /// Whether nothing was measured at all.
    pub(super) fn is_empty(&self) -> bool {
        let rows = self.tables.iter().flat_map(|table| &table.rows);
        let mut figures = rows.flat_map(|row| &row.measured).flat_map(|line| &line.figures);
        figures.all(Option::is_none)
    }
}

impl TableReport {
    fn new(table: &Table, answers: &Answers) -> TableReport {
        TableReport {
            title: table.title.clone(),
            unit: table.unit.clone(),
            corner: table.corner.clone(),
            caption: table.caption.clone(),
            columns: table.columns.iter().map(|column| column.name.clone()).collect(),
            rows: (0..table.rows.len()).map(|row| RowReport::new(table, row, answers)).collect(),
        }
    }
}

impl RowReport {
    fn new(table: &Table, row: usize, answers: &Answers) -> RowReport {
        let questions: Vec<Question> =
            (0..table.columns.len()).map(|column| table.ask(row, column)).collect();
        let measured = if table.has_servers_in_columns() {
            vec![Measured::of(None, &questions, answers)]
        } else {
            let servers = questions[0].servers.iter();
            servers.map(|server| Measured::of(Some(server), &questions, answers)).collect()
        };
        RowReport {
            name: table.rows[row].name.clone(),
            places: questions.iter().map(|question| question.figure.places()).collect(),
            published: (0..table.columns.len()).map(|c| table.published(row, c)).collect(),
            measured,
        }
    }
}

impl Measured {
    fn of(server: Option<&String>, questions: &[Question], answers: &Answers) -> Measured {
        let figure = |q: &Question| answers.get(q, server.unwrap_or(&q.servers[0]));
        Measured { server: server.cloned(), figures: questions.iter().map(figure).collect() }
    }
}
