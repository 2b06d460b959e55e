//! Puts load on the servers in turns, and prints the results as tables.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::load::{self, Round};
use crate::report::{self, Cell};
use crate::subject::{Row, Subject};
use xtask::Result;
use xtask::workspace::Workspace;

/// Creates an empty folder for a run.
pub(crate) fn folder(workspace: &Workspace) -> Result<PathBuf> {
    let folder = workspace.target().join("bench");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// Sends each row's request to each server, to fill the caches.
pub(crate) fn warm(rows: &[Row], subjects: &[Subject]) -> Result {
    for subject in subjects {
        for row in rows.iter().rev() {
            subject.check(row)?;
        }
    }
    Ok(())
}

/// The measurements.
pub(crate) struct Measured {
    rows: Vec<&'static str>,
    names: Vec<&'static str>,
    /// By row and subject.
    cells: Vec<Vec<Cell>>,
}

impl Measured {
    /// Measures the rows with wrk.
    pub(crate) fn take(
        rows: &[Row],
        subjects: &[Subject],
        quick: bool,
        dir: &Path,
        deadline: Instant,
    ) -> Result<Self> {
        let names = rows.iter().map(|row| row.name).collect();
        Self::each(names, subjects, quick, deadline, |row, subject| {
            let row = &rows[row];
            let (path, fields) = (subject.path(row.file), subject.fields(row)?);
            let round = load::measure(subject, &path, &fields, dir)?;
            subject.check(row)?;
            Ok(round)
        })
    }

    /// Measures each row, by its position, and server. Each round begins with another server.
    pub(crate) fn each(
        rows: Vec<&'static str>,
        subjects: &[Subject],
        quick: bool,
        deadline: Instant,
        measure: impl Fn(usize, &Subject) -> Result<Round>,
    ) -> Result<Self> {
        let rounds = if quick { 1 } else { 15 };
        let mut cells = vec![vec![Cell::new(); subjects.len()]; rows.len()];
        for round in 0..rounds {
            println!("round {} of {rounds}", round + 1);
            for (row, cells) in cells.iter_mut().enumerate() {
                for at in (0..subjects.len()).map(|at| (at + round) % subjects.len()) {
                    if Instant::now() > deadline {
                        return Err("the time limit has passed".into());
                    }
                    cells[at].push(measure(row, &subjects[at])?);
                }
            }
        }
        Ok(Self {
            rows,
            names: subjects.iter().map(Subject::name).collect(),
            cells,
        })
    }

    /// Returns the position of a server.
    pub(crate) fn at(&self, name: &str) -> Result<usize> {
        self.names
            .iter()
            .position(|known| *known == name)
            .ok_or_else(|| format!("there is no server {name} to compare with").into())
    }

    /// Prints the rates, the costs, and the ratios of these pairs.
    pub(crate) fn print(&self, pairs: &[(usize, usize)]) {
        let Self { rows, names, cells } = self;
        let ratios: Vec<String> = pairs
            .iter()
            .map(|(one, other)| format!("{} / {}", names[*one], names[*other]))
            .collect();
        let ratios: Vec<&str> = ratios.iter().map(String::as_str).collect();
        let print = |text: String| println!("{text}");
        print(report::table(
            "requests/s, thousands",
            rows,
            names,
            |row, column| report::rate(&cells[row][column]),
        ));
        print(report::table(
            "server's CPU time per request, µs",
            rows,
            names,
            |row, column| report::cpu(&cells[row][column]),
        ));
        let compare = |title, ratio: fn(&Cell, &Cell) -> String| {
            print(report::table(title, rows, &ratios, |row, column| {
                let (one, other) = pairs[column];
                ratio(&cells[row][one], &cells[row][other])
            }));
        };
        compare("ratio of requests/s", report::rates);
        compare(
            "ratio of requests per CPU second of the server",
            report::yields,
        );
    }
}
