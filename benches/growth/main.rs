//! Growth: cost per request and memory per resource, with few and with many resources.
//!
//! All sizes are measured in turns, so that other load affects all of them. `--quick` skips the largest.
#![expect(
    clippy::unwrap_used,
    reason = "a benchmark stops at an unexpected result"
)]
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "prints its table, and its progress"
)]

mod footprint;
mod subject;

use std::path::Path;
use std::time::Duration;

use ifmatch_redb::RedbRegister;
use ifmatch_register::{MemoryRegister, Register};
use statistics::median;
use tokio::runtime::Runtime;

use footprint::{on_disk, resident};
use subject::Subject;

const ROUNDS: usize = 5;
/// Numbers of resources.
const SIZES: [usize; 3] = [1_000, 100_000, 1_000_000];
/// Reads of a round.
const READS: usize = 50_000;
/// Writes of a round.
const WRITES: usize = 20_000;

fn main() {
    let quick = std::env::args().any(|arg| arg == "--quick");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let sizes = if quick { &SIZES[..2] } else { &SIZES };
    println!(
        "| register | resources | 304, µs | If-Match PUT, µs | record, bytes | with its cached response, bytes |"
    );
    println!("|---|---|---|---|---|---|");
    let in_memory: Vec<Grown> = sizes
        .iter()
        .map(|size| Grown::new(&runtime, *size, MemoryRegister::unbounded()))
        .collect();
    report(&runtime, "memory", in_memory);
    let folder = tempfile::tempdir().unwrap();
    let on_disk = sizes.iter().map(|size| {
        let file = folder.path().join(size.to_string());
        let grown = Grown::new(&runtime, *size, RedbRegister::open(&file).unwrap());
        grown.beside(&file)
    });
    let on_disk = on_disk.collect();
    report(&runtime, "redb", on_disk);
}

/// A layer with a number of resources, and the bytes that each of them takes.
struct Grown {
    subject: Subject,
    size: usize,
    /// Memory of its record.
    record: u64,
    /// Memory of its record and its cached response.
    remembered: u64,
    /// Disk space of its record, if that is in a file.
    file: Option<u64>,
}

impl Grown {
    /// Creates all resources, and reads each once.
    fn new(runtime: &Runtime, size: usize, register: impl Register) -> Self {
        eprintln!("filling {size}");
        let start = resident();
        let mut subject = Subject::new(size, register);
        runtime.block_on(subject.create_all());
        let written = resident();
        runtime.block_on(subject.read_all());
        let each = |bytes: u64| bytes / size as u64;
        let record = each(written.saturating_sub(start));
        Self {
            subject,
            size,
            record,
            remembered: each(resident().saturating_sub(start)),
            file: None,
        }
    }

    /// Adds the disk space of the register's file.
    fn beside(self, file: &Path) -> Self {
        let bytes = on_disk(file) / self.size as u64;
        Self {
            file: Some(bytes),
            ..self
        }
    }
}

fn report(runtime: &Runtime, name: &str, mut all: Vec<Grown>) {
    let mut reads = vec![Vec::new(); all.len()];
    let mut writes = vec![Vec::new(); all.len()];
    for round in 0..ROUNDS {
        eprintln!("{name}: round {} of {ROUNDS}", round + 1);
        for (at, grown) in all.iter_mut().enumerate() {
            let micros = |time: Duration| time.as_secs_f64() * 1e6;
            reads[at].push(micros(runtime.block_on(grown.subject.revalidate(READS))));
            writes[at].push(micros(runtime.block_on(grown.subject.update(WRITES))));
        }
    }
    for (at, grown) in all.iter().enumerate() {
        let (read, write) = (median(&reads[at]), median(&writes[at]));
        let file = grown
            .file
            .map_or(String::new(), |bytes| format!(" ({bytes} on disk)"));
        println!(
            "| {name} | {} | {read:.1} | {write:.1} | {}{file} | {} |",
            grown.size, grown.record, grown.remembered
        );
    }
}
