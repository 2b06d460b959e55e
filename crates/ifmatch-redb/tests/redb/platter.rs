//! A disk behind a page cache, modelled on Linux. Unsynced data may be lost with the power, page by page. A failed sync
//! is reported once, and its unwritten pages count as clean from then on.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use ifmatch_redb::DatabaseStorage;
use redb::StorageBackend;

/// Size of a page of the cache, in bytes.
const PAGE: usize = 4096;

/// Disk call that can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Open,
    Create,
    Read,
    Write,
    Length,
    Sync,
    Folder,
}

impl Call {
    pub(crate) const ALL: [Self; 7] = [
        Self::Open,
        Self::Create,
        Self::Read,
        Self::Write,
        Self::Length,
        Self::Sync,
        Self::Folder,
    ];
}

/// A disk with one folder and one name for a database. Clones share the same disk.
#[derive(Clone, Debug)]
pub(crate) struct Platter(Arc<Mutex<World>>);

/// The state of a disk and of the cache before it.
#[derive(Debug, Default)]
struct World {
    files: Vec<File>,
    /// File that the name refers to, in the cache and on the disk.
    name: Option<usize>,
    durable_name: Option<usize>,
    fresh: Option<usize>,
    /// Incremented when the process is killed. Calls of earlier processes have no effect.
    process: u64,
    /// The call to fail, and the number of such calls until then.
    fails: Option<(Call, usize)>,
    is_full: bool,
    creations_fail: bool,
    /// The newest commit is remembered as one that failed.
    has_failed: bool,
    /// The state of the pseudo-random numbers.
    draws: u64,
}

#[derive(Debug, Default)]
struct File {
    cache: Vec<u8>,
    disk: Vec<u8>,
    dirty: BTreeSet<usize>,
    /// The process that has it open.
    open_in: Option<u64>,
}

/// A file that a process has open.
#[derive(Debug)]
struct Handle {
    platter: Platter,
    file: usize,
    process: u64,
}

impl Platter {
    pub(crate) fn new(seed: u64) -> Self {
        let world = World {
            draws: seed,
            ..World::default()
        };
        Self(Arc::new(Mutex::new(world)))
    }

    /// Makes one upcoming call fail: the first, the second, and so on.
    pub(crate) fn fail(&self, call: Call, number: usize) {
        self.world().fails = Some((call, number));
    }

    pub(crate) fn cancel_failure(&self) {
        self.world().fails = None;
    }

    /// Returns `true` if the scheduled failure has occurred, and cancels it otherwise.
    pub(crate) fn take_failed(&self) -> bool {
        self.world().fails.take().is_none()
    }

    pub(crate) fn set_full(&self, is_full: bool) {
        self.world().is_full = is_full;
    }

    pub(crate) fn fail_creations(&self, they_fail: bool) {
        self.world().creations_fail = they_fail;
    }

    /// Returns `true` if there is a storage that hasn't replaced the database.
    pub(crate) fn has_leftover(&self) -> bool {
        self.world().fresh.is_some()
    }

    /// Ends the process that uses the disk. The cache survives.
    pub(crate) fn kill(&self) {
        self.world().process += 1;
    }

    /// Ends the process and drops the cache except for pages that the system happened to write.
    pub(crate) fn lose_power(&self) {
        let mut world = self.world();
        let World {
            files,
            name,
            durable_name,
            fresh,
            process,
            fails,
            draws,
            ..
        } = &mut *world;
        *process += 1;
        (*fails, *fresh) = (None, None);
        for file in files {
            file.write_some(draws);
            file.cache.clone_from(&file.disk);
        }
        *name = *durable_name;
    }

    pub(crate) fn draw(&self, below: usize) -> usize {
        draw(&mut self.world().draws, below)
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap()
    }

    fn handle(&self, file: usize) -> io::Result<Box<dyn StorageBackend>> {
        let mut world = self.world();
        let process = world.process;
        let open_in = &mut world.files[file].open_in;
        if *open_in == Some(process) {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        *open_in = Some(process);
        Ok(Box::new(Handle {
            platter: self.clone(),
            file,
            process,
        }))
    }
}

impl World {
    /// Counts a call, and makes it fail if a failure is scheduled for it.
    fn call(&mut self, call: Call) -> io::Result<()> {
        if self.is_full && matches!(call, Call::Create | Call::Write | Call::Length) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        if self.creations_fail && call == Call::Create {
            return Err(io::Error::other("the disk did not answer"));
        }
        match &mut self.fails {
            Some((which, number)) if *which == call => {
                *number -= 1;
                if *number > 0 {
                    return Ok(());
                }
                self.fails = None;
                Err(io::Error::other("the disk did not answer"))
            }
            _ => Ok(()),
        }
    }
}

impl DatabaseStorage for Platter {
    fn open(&self) -> io::Result<Option<Box<dyn StorageBackend>>> {
        let mut world = self.world();
        world.call(Call::Open)?;
        let name = world.name;
        drop(world);
        name.map(|file| self.handle(file)).transpose()
    }

    fn create(&self) -> io::Result<Box<dyn StorageBackend>> {
        let mut world = self.world();
        world.call(Call::Create)?;
        world.files.push(File::default());
        let file = world.files.len() - 1;
        world.fresh = Some(file);
        drop(world);
        self.handle(file)
    }

    fn replace(&self) -> io::Result<()> {
        let mut world = self.world();
        world.name = world.fresh.take();
        if let Err(error) = world.call(Call::Folder) {
            if draw(&mut world.draws, 2) == 0 {
                world.durable_name = world.name;
            }
            return Err(error);
        }
        world.durable_name = world.name;
        Ok(())
    }

    fn discard(&self) {
        self.world().fresh = None;
    }

    fn remember_failure(&self, has_failed: bool) -> io::Result<()> {
        self.world().has_failed = has_failed;
        Ok(())
    }

    fn has_failed(&self) -> io::Result<bool> {
        Ok(self.world().has_failed)
    }
}

impl Handle {
    fn on_file<T>(&self, call: Call, work: impl FnOnce(&mut File) -> T) -> io::Result<T> {
        let mut world = self.platter.world();
        if world.process != self.process {
            return Err(io::Error::other("the process has ended"));
        }
        let answer = world.call(call);
        let World { files, draws, .. } = &mut *world;
        let file = &mut files[self.file];
        match answer {
            Ok(()) => Ok(work(file)),
            Err(error) => {
                if call == Call::Sync {
                    file.write_some(draws);
                    // Some file systems keep pages in the cache that they couldn't write; others don't.
                    if draw(draws, 2) == 0 {
                        file.cache.clone_from(&file.disk);
                    }
                }
                Err(error)
            }
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let _ = self.close();
    }
}

impl StorageBackend for Handle {
    fn len(&self) -> io::Result<u64> {
        self.on_file(Call::Read, |file| file.cache.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let offset = usize::try_from(offset).unwrap();
        self.on_file(Call::Read, |file| {
            match file.cache.get(offset..offset + out.len()) {
                Some(bytes) => {
                    out.copy_from_slice(bytes);
                    Ok(())
                }
                None => Err(io::ErrorKind::UnexpectedEof.into()),
            }
        })?
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let len = usize::try_from(len).unwrap();
        // A file's length becomes durable before the bytes within it.
        self.on_file(Call::Length, |file| {
            file.cache.resize(len, 0);
            file.disk.resize(len, 0);
            file.dirty.retain(|page| page * PAGE < len);
        })
    }

    fn sync_data(&self) -> io::Result<()> {
        self.on_file(Call::Sync, |file| file.write_where(|_| true))
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let (from, to) = (
            usize::try_from(offset).unwrap(),
            usize::try_from(offset).unwrap() + data.len(),
        );
        self.on_file(Call::Write, |file| {
            file.cache[from..to].copy_from_slice(data);
            file.dirty.extend(from / PAGE..to.div_ceil(PAGE));
        })
    }

    fn close(&self) -> io::Result<()> {
        let mut world = self.platter.world();
        let open_in = &mut world.files[self.file].open_in;
        *open_in = open_in.filter(|process| *process != self.process);
        Ok(())
    }
}

/// Adapts any storage to redb.
#[derive(Debug)]
pub(crate) struct Plain(pub(crate) Box<dyn StorageBackend>);

impl StorageBackend for Plain {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.0.close()
    }
}

impl File {
    /// Writes the chosen dirty pages to the disk. All pages count as clean afterwards.
    fn write_where(&mut self, mut is_chosen: impl FnMut(usize) -> bool) {
        for page in std::mem::take(&mut self.dirty) {
            let place = page * PAGE..((page + 1) * PAGE).min(self.cache.len());
            if is_chosen(page) {
                self.disk[place.clone()].copy_from_slice(&self.cache[place]);
            }
        }
    }

    fn write_some(&mut self, draws: &mut u64) {
        let share = draw(draws, 5);
        self.write_where(|_| draw(draws, 4) < share);
    }
}

/// Draws a number with a linear congruential generator.
fn draw(draws: &mut u64, below: usize) -> usize {
    *draws = draws
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    usize::try_from(*draws >> 33).unwrap() % below
}
