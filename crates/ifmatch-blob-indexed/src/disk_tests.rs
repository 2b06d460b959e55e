//! Tests on a disk that fails once and then loses power: unsynced data is lost or torn. And other users can't read the files.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::future::join_all;
use http_body_util::{BodyExt, Full};
use ifmatch_blob::headers::{Append, BlobHeaders, FieldText};
use ifmatch_blob::name::BlobPath;
use ifmatch_blob::store::{
    AppendBlock, Appended, BlobStore, HeaderChange, Put, Reading, SetHeaders, StoreErrorKind,
    Upload,
};
use ifmatch_register::{Driver, MemoryRegister};

use super::IndexedStore;
use super::disk::{Disk, OpenFolder, Space, System};

type Store = IndexedStore;

/// Call to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    File,
    Folder,
    /// The sync of another upload, right before a folder is opened. It loses the names that weren't yet durable, and
    /// later users of the folder see no error.
    FolderOfAnother,
}

/// A disk behind a folder that acts as the page cache. Tracks synced data.
#[derive(Debug)]
struct Platter(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    fails: Option<(Call, usize)>,
    draws: u64,
    /// Durable bytes of files.
    bytes: HashMap<u64, Vec<u8>>,
    /// Files that failed to sync.
    torn: HashSet<u64>,
    /// Durable names in folders.
    names: HashMap<PathBuf, BTreeMap<OsString, u64>>,
    /// Names lost by a failed sync: no later sync writes them.
    lost: HashSet<(PathBuf, OsString, u64)>,
    /// Number of failed syncs of a folder at the time it was opened.
    opened: HashMap<i32, usize>,
    failures: HashMap<PathBuf, usize>,
    /// Open files, which prevent the reuse of inode numbers.
    pinned: Vec<File>,
}

impl Platter {
    fn new(seed: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new(State {
            draws: seed as u64,
            ..State::default()
        })))
    }

    fn fail(&self, call: Call, number: usize) {
        self.0.lock().unwrap().fails = Some((call, number));
    }

    /// Returns the remains of a folder after a power loss.
    fn after_power_loss(&self, root: &Path) -> tempfile::TempDir {
        let left = tempfile::tempdir().unwrap();
        self.0.lock().unwrap().restore(root, left.path());
        left
    }
}

impl State {
    fn draw(&mut self, below: u64) -> u64 {
        self.draws = self
            .draws
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.draws >> 33) % below
    }

    fn is_to_fail(&mut self, call: Call) -> bool {
        match &mut self.fails {
            Some((which, number)) if *which == call => {
                *number -= 1;
                if *number == 0 {
                    self.fails = None;
                }
                self.fails.is_none()
            }
            _ => false,
        }
    }

    /// Fails the sync of a folder: some of the names that weren't yet durable become durable, and the others never
    /// will.
    fn lose_names(&mut self, folder: &Path) {
        *self.failures.entry(folder.to_owned()).or_default() += 1;
        for (name, number) in entries(folder) {
            let durable = self.names.entry(folder.to_owned()).or_default();
            if durable.get(&name) == Some(&number) {
                continue;
            }
            if self.draw(2) == 0 {
                self.names
                    .entry(folder.to_owned())
                    .or_default()
                    .insert(name, number);
            } else {
                self.pinned.push(File::open(folder.join(&name)).unwrap());
                self.lost.insert((folder.to_owned(), name, number));
            }
        }
    }

    fn restore(&mut self, from: &Path, to: &Path) {
        let mut names = self.names.get(from).cloned().unwrap_or_default();
        for (name, number) in entries(from) {
            // The system may have written it back without a sync.
            if self.draw(4) == 0 && !self.lost.contains(&(from.to_owned(), name.clone(), number)) {
                names.insert(name, number);
            }
        }
        for (name, number) in names {
            let (from, to) = (from.join(&name), to.join(&name));
            if from.is_dir() {
                fs::create_dir(&to).unwrap();
                self.restore(&from, &to);
            } else {
                let torn = || vec![0; 5];
                fs::write(&to, self.bytes.get(&number).cloned().unwrap_or_else(torn)).unwrap();
            }
        }
    }
}

fn entries(folder: &Path) -> Vec<(OsString, u64)> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    entries
        .map(|entry| (entry.file_name(), entry.metadata().unwrap().ino()))
        .collect()
}

impl Disk for Platter {
    fn space(&self, folder: &Path) -> io::Result<Space> {
        System.space(folder)
    }

    fn sync_file(&self, file: &File) -> io::Result<()> {
        let mut state = self.0.lock().unwrap();
        let number = file.metadata().unwrap().ino();
        state.pinned.push(file.try_clone().unwrap());
        let mut bytes = fs::read(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
        if state.is_to_fail(Call::File) {
            // Durable bytes stay durable.
            let durable = state
                .bytes
                .get(&number)
                .map_or(0, Vec::len)
                .min(bytes.len());
            let torn =
                durable + usize::try_from(state.draw((bytes.len() - durable) as u64)).unwrap();
            bytes[torn..].fill(0);
            state.bytes.insert(number, bytes);
            state.torn.insert(number);
            return Err(io::Error::other("the disk did not answer"));
        }
        // A later sync doesn't write what a failed one has lost.
        if !state.torn.contains(&number) {
            state.bytes.insert(number, bytes);
        }
        Ok(())
    }

    fn open_folder<'a>(&self, path: &'a Path) -> io::Result<OpenFolder<'a>> {
        let mut state = self.0.lock().unwrap();
        if state.is_to_fail(Call::FolderOfAnother) {
            state.lose_names(path);
        }
        let file = File::open(path)?;
        let failures = state.failures.get(path).copied().unwrap_or_default();
        state.opened.insert(file.as_raw_fd(), failures);
        Ok(OpenFolder { path, file })
    }

    fn sync_folder(&self, folder: &OpenFolder<'_>) -> io::Result<()> {
        let mut state = self.0.lock().unwrap();
        if state.is_to_fail(Call::Folder) {
            state.lose_names(folder.path);
        }
        let failures = state.failures.get(folder.path).copied().unwrap_or_default();
        if failures > state.opened[&folder.file.as_raw_fd()] {
            return Err(io::Error::other("the disk did not answer"));
        }
        let durable = entries(folder.path).into_iter();
        let durable = durable.filter(|(name, number)| {
            !state
                .lost
                .contains(&(folder.path.to_owned(), name.clone(), *number))
        });
        let durable = durable.collect();
        state.names.insert(folder.path.to_owned(), durable);
        Ok(())
    }
}

fn blob(number: usize) -> BlobPath {
    BlobPath::parse(&format!("/c/{number}")).unwrap()
}

fn content(number: usize) -> Bytes {
    vec![u8::try_from(number % COPY).unwrap(); 10_000].into()
}

async fn open(
    folder: &Path,
    register: &Arc<MemoryRegister>,
    disk: Arc<dyn Disk>,
) -> Result<Store, super::OpenError> {
    IndexedStore::on_disk(folder, Driver::new(Arc::clone(register)), disk).await
}

/// The copy of a blob has a number larger by this.
const COPY: usize = 5;

/// Writes blobs, and copies them, while a call fails. Returns the acknowledged ones.
async fn write(store: &Store) -> Vec<usize> {
    let mut acknowledged = Vec::new();
    for number in 0..5 {
        let put = Put::new(Upload::new(Full::<Bytes>::from(content(number))));
        if store.put(&blob(number), put).await.is_ok() {
            acknowledged.push(number);
        }
    }
    for number in acknowledged.clone() {
        let opened = store
            .open(&blob(number), Reading::WHOLE)
            .await
            .expect("it can be read")
            .expect("acknowledged");
        let put = Put::copying(&blob(number), opened)
            .await
            .expect("it can be read");
        if store.put(&blob(COPY + number), put).await.is_ok() {
            acknowledged.push(COPY + number);
        }
    }
    acknowledged
}

async fn read(store: &Store, number: usize) -> Option<Bytes> {
    bytes_of(store, &blob(number)).await
}

async fn bytes_of(store: &Store, blob: &BlobPath) -> Option<Bytes> {
    let mut opened = store
        .open(blob, Reading::WHOLE)
        .await
        .expect("it can be read")?;
    Some(
        opened
            .source
            .read(None)
            .await
            .expect("it can be read")
            .collect()
            .await
            .expect("whole")
            .to_bytes(),
    )
}

#[tokio::test]
async fn one_failed_sync_costs_no_acknowledged_body() {
    // The first two folders belong to the store itself.
    for (call, numbers) in [
        (Call::File, [1, 2, 3]),
        (Call::Folder, [1, 4, 9]),
        (Call::FolderOfAnother, [2, 4, 9]),
    ] {
        for number in numbers {
            let root = tempfile::tempdir().unwrap();
            let (platter, register) = (Platter::new(number), Arc::new(MemoryRegister::unbounded()));
            platter.fail(call, number);
            // A folder that can't be made durable isn't used; the next start recreates it.
            let store = match open(root.path(), &register, platter.clone()).await {
                Ok(store) => store,
                Err(_) => open(root.path(), &register, platter.clone())
                    .await
                    .expect("one failure is not two"),
            };
            let acknowledged = write(&store).await;
            assert!(
                acknowledged.len() >= 8,
                "one failure costs one write, and its copy"
            );
            drop(store);
            let left = platter.after_power_loss(root.path());
            let store = open(left.path(), &register, Platter::new(number))
                .await
                .expect("it opens");
            for blob in 0..2 * COPY {
                let found = read(&store, blob).await;
                assert!(
                    found.is_none() || found == Some(content(blob)),
                    "{call:?} {number}: blob {blob} is torn"
                );
                assert!(
                    found.is_some() || !acknowledged.contains(&blob),
                    "{call:?} {number}: blob {blob} is lost"
                );
            }
        }
    }
}

fn log() -> BlobPath {
    BlobPath::parse("/c/log").unwrap()
}

/// Appends blocks one after another, and in between all at once, while a call fails. Returns the acknowledged ones with their offsets.
async fn append(store: &Store) -> Vec<(u64, u8)> {
    let headers = BlobHeaders {
        append: Some(Append::default()),
        ..BlobHeaders::default()
    };
    let put = Put {
        headers,
        ..Put::new(Upload::new(Full::<Bytes>::default()))
    };
    store
        .put(&log(), put)
        .await
        .expect("it is in the index alone");
    let append = async |number: u8| {
        (
            number,
            store
                .append(&log(), AppendBlock::new(vec![number; BLOCK].into()))
                .await,
        )
    };
    let mut appended = Vec::new();
    for number in [1, 2, 3] {
        appended.push(append(number).await);
    }
    appended.extend(join_all([4, 5, 6].map(append)).await);
    appended.push(append(7).await);
    let written = |(number, result): (u8, Result<Appended, _>)| Some((result.ok()?.offset, number));
    appended.into_iter().filter_map(written).collect()
}

/// The sync of some appends fails, and a change of the fields waits with them.
#[tokio::test]
async fn a_failed_append_fails_no_other_change_of_its_group() {
    let (root, register) = (
        tempfile::tempdir().unwrap(),
        Arc::new(MemoryRegister::unbounded()),
    );
    let platter = Platter::new(1);
    let store = open(root.path(), &register, platter.clone())
        .await
        .expect("it opens");
    append(&store).await;
    platter.fail(Call::File, 1);
    let block = || AppendBlock::new(vec![8; BLOCK].into());
    let log = log();
    let before = bytes_of(&store, &log).await.expect("there it is").len();
    let metadata =
        HeaderChange::Metadata([("owner".into(), FieldText::new("me").expect("valid"))].into());
    let (first, second, set) = tokio::join!(
        store.append(&log, block()),
        store.append(&log, block()),
        store.set_headers(&log, SetHeaders::new(metadata)),
    );
    set.expect("it needs no sync of the file");
    let failed = [first, second]
        .into_iter()
        .filter_map(Result::err)
        .collect::<Vec<_>>();
    assert!(
        !failed.is_empty()
            && failed
                .iter()
                .all(|error| *error.kind() == StoreErrorKind::Unavailable),
        "{failed:?}"
    );
    let next = store
        .append(&log, block())
        .await
        .expect("the body is copied");
    assert_eq!(next.offset, (before + (2 - failed.len()) * BLOCK) as u64);
    let opened = store
        .open(&log, Reading::HEAD)
        .await
        .expect("readable")
        .expect("there it is");
    assert_eq!(opened.info.headers.metadata.len(), 1);
}

/// Length of a block in bytes: two don't fit into a record.
const BLOCK: usize = 3_000;

#[tokio::test]
async fn one_failed_sync_costs_no_acknowledged_block() {
    let mut failures = 0;
    for (call, numbers) in [
        (Call::File, 1..5),
        (Call::Folder, 1..6),
        (Call::FolderOfAnother, 2..6),
    ] {
        for number in numbers {
            let root = tempfile::tempdir().unwrap();
            let (platter, register) = (Platter::new(number), Arc::new(MemoryRegister::unbounded()));
            let store = open(root.path(), &register, platter.clone())
                .await
                .expect("it opens");
            platter.fail(call, number);
            let acknowledged = append(&store).await;
            failures += usize::from(acknowledged.len() < 7);
            assert!(
                acknowledged.len() >= 4,
                "one failure costs one group: {acknowledged:?}"
            );
            drop(store);
            let left = platter.after_power_loss(root.path());
            let store = open(left.path(), &register, Platter::new(number))
                .await
                .expect("it opens");
            let bytes = bytes_of(&store, &log()).await.expect("the log is there");
            assert_eq!(
                bytes.len(),
                acknowledged.len() * BLOCK,
                "{call:?} {number}: {acknowledged:?}"
            );
            for (offset, number) in acknowledged {
                let offset = usize::try_from(offset).unwrap();
                let block = &bytes[offset..offset + BLOCK];
                assert!(
                    block.iter().all(|byte| *byte == number),
                    "{call:?}: block {number} at {offset} is torn"
                );
            }
        }
    }
    assert!(failures > 3, "most failures hit an append: {failures}");
}

/// Returns the files and folders below a folder that other users can access.
fn open_to_others(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if fs::metadata(&path).expect("it exists").permissions().mode() & 0o077 != 0 {
            found.push(path.clone());
        }
        if path.is_dir() {
            found.extend(open_to_others(&path));
        }
    }
    found
}

#[tokio::test]
async fn other_users_cannot_read_a_new_store() {
    let root = tempfile::tempdir().expect("a temporary folder");
    let mode = |name: &str| {
        fs::metadata(root.path().join(name))
            .expect("it exists")
            .permissions()
            .mode()
            & 0o777
    };
    drop(
        IndexedStore::open(root.path().join("new/data"))
            .await
            .expect("it opens"),
    );
    assert_eq!((mode("new"), mode("new/data")), (0o700, 0o700));

    fs::create_dir(root.path().join("shared")).expect("created");
    fs::set_permissions(root.path().join("shared"), Permissions::from_mode(0o750))
        .expect("changed");
    drop(
        IndexedStore::open(root.path().join("shared"))
            .await
            .expect("it opens"),
    );
    assert_eq!(
        mode("shared"),
        0o750,
        "an existing folder keeps its permissions"
    );
}

#[tokio::test]
async fn other_users_cannot_read_new_files_in_a_shared_folder() {
    let root = tempfile::tempdir().expect("a temporary folder");
    fs::set_permissions(root.path(), Permissions::from_mode(0o755)).expect("changed");
    // As restored from a backup that keeps no permissions.
    fs::create_dir(root.path().join("bodies")).expect("created");
    fs::set_permissions(root.path().join("bodies"), Permissions::from_mode(0o755))
        .expect("changed");
    fs::write(root.path().join("bodies/foreign"), "").expect("written");
    let index = root.path().join("index.redb");
    drop(IndexedStore::open(root.path()).await.expect("it opens"));
    fs::set_permissions(&index, Permissions::from_mode(0o644)).expect("changed");

    let store = IndexedStore::open(root.path()).await.expect("it opens");
    let put = Put::new(Upload::new(Full::<Bytes>::from(vec![7; 100_000])));
    store
        .put(&BlobPath::parse("/c/b").expect("valid"), put)
        .await
        .expect("written");
    assert_eq!(
        open_to_others(root.path()),
        [root.path().join("bodies/foreign")]
    );
}
