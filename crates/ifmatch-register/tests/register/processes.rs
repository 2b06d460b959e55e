//! The run in two processes, on a register in a file, and on one that is wrong.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::Mutex;

use futures_util::FutureExt;
use ifmatch_core::record::{Record, Revision};
use ifmatch_register::conformance::{self, RaceSize};
use ifmatch_register::{Key, Register, RegisterError, Scan, Swap, async_trait};

/// A register in a file, which the processes lock in turn.
struct InFile {
    path: PathBuf,
    /// The first record that this handle found under each key. Only a wrong handle has it: it never loads a key twice.
    found: Option<Mutex<HashMap<Key, Record>>>,
}

impl InFile {
    fn correct(path: &str) -> Self {
        Self {
            path: path.into(),
            found: None,
        }
    }

    fn wrong(path: &str) -> Self {
        Self {
            path: path.into(),
            found: Some(Mutex::default()),
        }
    }

    /// Reads all records, and writes them if the change returns `true`.
    fn with<T>(&self, change: impl FnOnce(&mut BTreeMap<String, Vec<u8>>) -> (bool, T)) -> T {
        let lock = File::create(self.path.with_extension("lock")).unwrap();
        lock.lock().unwrap();
        let bytes = fs::read(&self.path).unwrap_or_default();
        let mut records = if bytes.is_empty() {
            BTreeMap::new()
        } else {
            serde_json::from_slice(&bytes).unwrap()
        };
        let (is_changed, result) = change(&mut records);
        if is_changed {
            fs::write(&self.path, serde_json::to_vec(&records).unwrap()).unwrap();
        }
        result
    }
}

#[async_trait]
impl Register for InFile {
    async fn load(&self, key: &Key) -> Result<Option<Record>, RegisterError> {
        let mut found = self.found.as_ref().map(|found| found.lock().unwrap());
        if let Some(record) = found.as_ref().and_then(|found| found.get(key)) {
            return Ok(Some(record.clone()));
        }
        let bytes = self.with(|records| (false, records.get(key.as_str()).cloned()));
        let record = bytes.map(|bytes| Record::decode(&bytes)).transpose()?;
        if let (Some(found), Some(record)) = (&mut found, &record) {
            found.insert(key.clone(), record.clone());
        }
        Ok(record)
    }

    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: Revision,
        next: Option<&Record>,
    ) -> Result<Swap, RegisterError> {
        self.with(|records| {
            let record = records
                .get(key.as_str())
                .map(|bytes| Record::decode(bytes).unwrap());
            if record.as_ref().map_or(Revision::NONE, Record::revision) != expected {
                return (false, Ok(Swap::Conflict(record)));
            }
            match next {
                Some(next) => records.insert(key.as_str().to_owned(), next.encode()),
                None => records.remove(key.as_str()),
            };
            (true, Ok(Swap::Done))
        })
    }

    async fn scan(&self, scan: &Scan<'_>) -> Result<Vec<(Key, Record)>, RegisterError> {
        let records = self.with(|records| (false, std::mem::take(records)));
        let after = |key: &str| scan.after.is_none_or(|after| key > after);
        let listed = records
            .into_iter()
            .filter(|(key, _)| key.starts_with(scan.prefix) && after(key));
        Ok(listed
            .take(scan.limit)
            .map(|(key, bytes)| (Key::new(key).unwrap(), Record::decode(&bytes).unwrap()))
            .collect())
    }
}

/// Returns the path of a new file, with the folder that is removed at the end.
async fn start() -> (String, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    (
        folder.path().join("records").to_str().unwrap().to_owned(),
        folder,
    )
}

fn size() -> RaceSize {
    RaceSize::new(4, 5)
}

#[tokio::test(flavor = "multi_thread")]
async fn two_processes_share_a_register() {
    let open = async |path: &str| InFile::correct(path);
    conformance::run_in_two_processes(
        "processes::two_processes_share_a_register",
        start,
        open,
        size(),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_reads_from_its_own_memory_is_found() {
    let open = async |path: &str| InFile::wrong(path);
    let test = "processes::a_process_that_reads_from_its_own_memory_is_found";
    let run = conformance::run_in_two_processes(test, start, open, size());
    let result = AssertUnwindSafe(run).catch_unwind().await;
    if std::env::var_os("IFMATCH_CONFORMANCE_PROCESS").is_some() {
        return result.expect("the second process only records");
    }
    let panic = result.expect_err("the register is wrong");
    let message = panic.downcast_ref::<String>().unwrap();
    assert!(
        message.starts_with("an older revision was found"),
        "{message}"
    );
}

#[tokio::test(flavor = "multi_thread")]
#[should_panic(expected = "is the name of the test right?")]
async fn a_second_process_that_runs_nothing_is_found() {
    let open = async |path: &str| InFile::correct(path);
    conformance::run_in_two_processes("no_such_test", start, open, size()).await;
}
