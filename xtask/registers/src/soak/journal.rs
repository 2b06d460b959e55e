//! The operations of a process, in a file that remains if the process is killed.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use ifmatch_core::record::Revision;
use ifmatch_register::conformance::history::{Action, Answer, Operation};

use crate::Result;

/// Writes operations to a file, one a line.
#[derive(Clone)]
pub(super) struct Writer(Arc<Mutex<File>>);

/// Reads operations from a file that may still grow.
pub(super) struct Reader {
    path: PathBuf,
    file: Option<File>,
    /// The beginning of a line.
    rest: String,
    operations: Vec<Operation>,
    /// Unacknowledged swaps so far, by the revision that they propose.
    open: HashMap<Revision, usize>,
    swaps: usize,
}

impl Writer {
    pub(super) fn create(path: &Path) -> Result<Self> {
        Ok(Self(Arc::new(Mutex::new(File::create(path)?))))
    }

    /// Writes an operation, without a buffer: its line remains if this process is killed.
    ///
    /// # Errors
    /// If the file can't be written, and the history would lack an operation.
    pub(super) fn write(&self, operation: &Operation) -> Result {
        let line = format!("{operation}\n");
        Ok(self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .write_all(line.as_bytes())?)
    }
}

impl Reader {
    pub(super) fn of(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            file: None,
            rest: String::new(),
            operations: Vec::new(),
            open: HashMap::new(),
            swaps: 0,
        }
    }

    /// Reads the lines that were written since the last call.
    pub(super) fn read(&mut self) -> Result {
        if self.file.is_none() {
            // The process may not have created it yet.
            self.file = File::open(&self.path).ok();
        }
        let Some(file) = &mut self.file else {
            return Ok(());
        };
        file.read_to_string(&mut self.rest)?;
        let Some(end) = self.rest.rfind('\n') else {
            return Ok(());
        };
        let lines: String = self.rest.drain(..=end).collect();
        for line in lines.lines() {
            self.push(line.parse().map_err(|error| format!("{error}: {line}"))?);
        }
        Ok(())
    }

    /// A swap's answer takes the place of its beginning.
    fn push(&mut self, operation: Operation) {
        let Action::Swap { next, answer, .. } = operation.action else {
            self.operations.push(operation);
            return;
        };
        self.swaps += usize::from(answer == Answer::Done);
        if let Some(at) = self.open.remove(&next) {
            self.operations[at] = operation;
        } else {
            self.open.insert(next, self.operations.len());
            self.operations.push(operation);
        }
    }

    /// Returns the number of operations so far.
    pub(super) fn operations(&self) -> usize {
        self.operations.len()
    }

    /// Returns the number of acknowledged swaps so far.
    pub(super) fn swaps(&self) -> usize {
        self.swaps
    }

    pub(super) fn into_operations(self) -> Vec<Operation> {
        self.operations
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swaps_without_an_answer_are_ambiguous() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let mut reader = Reader::of(&path);
        reader.read().unwrap();
        let writer = Writer::create(&path).unwrap();
        for line in [
            "1 1 swap 0 5 ambiguous a",
            "2 2 swap 0 7 ambiguous b",
            "1 3 swap 0 5 done a",
            "4 5 load 5 a",
        ] {
            writer.write(&line.parse().unwrap()).unwrap();
            reader.read().unwrap();
        }
        assert_eq!((reader.operations(), reader.swaps()), (3, 1));
        let operations: Vec<String> = reader
            .into_operations()
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            operations,
            [
                "1 3 swap 0 5 done a",
                "2 2 swap 0 7 ambiguous b",
                "4 5 load 5 a"
            ]
        );
    }
}
