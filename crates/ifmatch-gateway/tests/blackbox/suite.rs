//! The cases, each a separate test, with the known differences between servers, and tables in data files.

use std::any::Any;
use std::cell::RefCell;
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind, set_hook};
use std::sync::Arc;

use libtest_mimic::{Failed, Trial};

use crate::site::Site;

thread_local! {
    /// Place and message of this thread's last panic.
    static LAST_PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// All cases against one server.
pub(crate) struct Suite {
    site: Arc<Site>,
    differences: Vec<Difference>,
    names: HashSet<String>,
    trials: Vec<Trial>,
}

/// A line of `differences.txt`: cases that this server is known to fail.
struct Difference {
    /// A case's name, or a prefix of names followed by `…`.
    cases: String,
    reason: String,
}

impl Difference {
    fn covers(&self, name: &str) -> bool {
        self.cases
            .strip_suffix('…')
            .map_or(self.cases == name, |start| name.starts_with(start))
    }
}

impl Suite {
    /// Creates a suite without cases.
    pub(crate) fn new(site: Arc<Site>) -> Self {
        set_hook(Box::new(remember));
        let differences = rows(include_str!("../data/blackbox/differences.txt"))
            .into_iter()
            .map(|row| match row.as_slice() {
                [servers, cases, reason] if !reason.is_empty() => {
                    (servers.clone(), cases.clone(), reason.clone())
                }
                _ => panic!("differences.txt: servers | case | what differs, and why: {row:?}"),
            })
            .filter(|(servers, ..)| servers.split(' ').any(|server| server == site.server))
            .map(|(_, cases, reason)| Difference { cases, reason })
            .collect();
        Self {
            site,
            differences,
            names: HashSet::new(),
            trials: Vec::new(),
        }
    }

    /// Returns the server under test.
    pub(crate) fn site(&self) -> &Arc<Site> {
        &self.site
    }

    /// Adds a case.
    pub(crate) fn case(
        &mut self,
        name: impl Into<String>,
        run: impl FnOnce(&Site) + Send + 'static,
    ) {
        let name = name.into();
        assert!(
            self.names.insert(name.clone()),
            "two cases are named {name}"
        );
        let site = Arc::clone(&self.site);
        let known = self
            .differences
            .iter()
            .find(|difference| difference.covers(&name));
        let known = known.map(|difference| difference.reason.clone());
        self.trials.push(Trial::test(
            format!("{}: {name}", self.site.server),
            move || match (catch_unwind(AssertUnwindSafe(|| run(&site))), known) {
                (Ok(()), None) | (Err(_), Some(_)) => Ok(()),
                (Ok(()), Some(reason)) => Err(Failed::from(format!(
                    "passes, but differences.txt says: {reason}"
                ))),
                (Err(panic), None) => Err(Failed::from(said(panic.as_ref()))),
            },
        ));
    }

    /// Returns the cases, and one that checks the list of differences.
    pub(crate) fn into_trials(self) -> Vec<Trial> {
        let Self {
            site,
            names,
            differences,
            mut trials,
        } = self;
        let stale = differences
            .iter()
            .filter(|difference| !names.iter().any(|name| difference.covers(name)));
        let stale: Vec<String> = stale.map(|difference| difference.cases.clone()).collect();
        trials.push(Trial::test(
            format!(
                "{}: every line of differences.txt matches a case",
                site.server
            ),
            move || {
                if stale.is_empty() {
                    Ok(())
                } else {
                    Err(Failed::from(format!("no such case: {stale:?}")))
                }
            },
        ));
        trials
    }
}

/// Stores the panic message for the report of the case.
fn remember(info: &PanicHookInfo<'_>) {
    let place = info
        .location()
        .map(|place| format!("{}:{}", place.file(), place.line()))
        .unwrap_or_default();
    LAST_PANIC.with(|last| *last.borrow_mut() = format!("{}\n  at {place}", text(info.payload())));
}

/// Returns the message of a panic, with its place if it came from this thread.
pub(crate) fn said(payload: &(dyn Any + Send)) -> String {
    let last = LAST_PANIC.with(RefCell::take);
    let payload = text(payload);
    if last.starts_with(payload) {
        last
    } else {
        payload.to_owned()
    }
}

fn text(payload: &(dyn Any + Send)) -> &str {
    let owned = payload.downcast_ref::<String>().map(String::as_str);
    owned
        .or_else(|| payload.downcast_ref::<&str>().copied())
        .unwrap_or("a panic without a message")
}

/// Returns the rows of a table.
pub(crate) fn rows(text: &str) -> Vec<Vec<String>> {
    let lines = text
        .lines()
        .filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            format!("{line} ")
                .split("| ")
                .map(|column| column.trim().to_owned())
                .collect()
        })
        .collect()
}

/// Returns the rows of a table with columns separated by whitespace, without the header row.
pub(crate) fn words(text: &str) -> Vec<Vec<String>> {
    let lines = text
        .lines()
        .filter(|line| !line.trim().is_empty() && !line.starts_with('#'))
        .skip(1);
    lines
        .map(|line| line.split_whitespace().map(str::to_owned).collect())
        .collect()
}

/// Parses a column with headers: `name: value ;; name: value`, or `-`.
pub(crate) fn fields(column: &str) -> Vec<(String, String)> {
    let lines = column
        .split(";;")
        .map(str::trim)
        .filter(|line| *line != "-");
    lines
        .map(|line| {
            let (name, value) = line
                .split_once(':')
                .unwrap_or_else(|| panic!("not a header: {line}"));
            (name.trim().to_owned(), value.trim().replace("<>", ""))
        })
        .collect()
}

/// Borrows headers.
pub(crate) fn borrowed(fields: &[(String, String)]) -> Vec<(&str, &str)> {
    fields
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect()
}
