//! The shared cache compared with others: hits, concurrent requests for one response, and many small responses.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use crate::peers::{NGINX_TOOL, VARNISH_TOOL};
use crate::rounds::{self, Measured};
use crate::subject::{CLIENT_CORE, Row, Subject, TWO_CORES, WRK};
use crate::{caches, programs, report, scenarios};
use xtask::Result;
use xtask::command::Run;
use xtask::step::Tool;
use xtask::workspace::Workspace;

const TOOLS: &[Tool] = &[
    WRK,
    NGINX_TOOL,
    VARNISH_TOOL,
    Tool {
        name: "Traffic Server",
        probe: &["traffic_server", "--version"],
        install: "apt-get install -y trafficserver",
    },
    Tool {
        name: "CMake",
        probe: &["cmake", "--version"],
        install: "apt-get install -y cmake",
    },
    TWO_CORES,
];

/// The measured requests.
pub(crate) const ROWS: &[Row] = &[
    Row {
        name: "304",
        file: "1k",
        len: 1024,
        revalidates: true,
    },
    Row {
        name: "200, 1 KiB",
        file: "1k",
        len: 1024,
        revalidates: false,
    },
    Row {
        name: "200, 64 KiB",
        file: "64k",
        len: 65_536,
        revalidates: false,
    },
    Row {
        name: "200, 1 MiB",
        file: "1m",
        len: 1 << 20,
        revalidates: false,
    },
];

/// Number of concurrent clients.
const CROWD: usize = 1_000;

/// Response time of the origin.
const ORIGIN_TAKES: Duration = Duration::from_millis(500);

/// Requests small responses one after the other, each from another path, and starts over at the end.
const SMALL: &str = "local at = @ASKED@\nrequest = function()\n  at = at % @COUNT@ + 1\n  return wrk.format('GET', '/small/' .. at)\nend\n";

/// Measures and prints the tables.
pub(crate) fn run(workspace: &Workspace, quick: bool, deadline: Instant) -> Result {
    TOOLS.iter().try_for_each(|tool| tool.require(workspace))?;
    let dir = rounds::folder(workspace)?;
    let programs = Programs {
        gateway: programs::gateway(workspace)?,
        pingora: programs::pingora(workspace)?,
    };
    hits(&programs, quick, &dir, deadline)?;
    crowds(&programs, &dir)?;
    let (count, seconds) = if quick { (20_000, 5) } else { (1_000_000, 20) };
    small(&programs.gateway, count, seconds, &dir, deadline)?;
    scenarios::run(&programs.gateway, quick, &dir)
}

/// Measures and prints the last table only.
pub(crate) fn scenarios(workspace: &Workspace, quick: bool) -> Result {
    TOOLS
        .iter()
        .filter(|tool| tool.name != "CMake")
        .try_for_each(|tool| tool.require(workspace))?;
    let dir = rounds::folder(workspace)?;
    scenarios::run(&programs::gateway(workspace)?, quick, &dir)
}

/// Programs built for the run.
struct Programs {
    gateway: PathBuf,
    pingora: PathBuf,
}

/// Starts all caches in front of an origin.
fn start(programs: &Programs, origin: &Subject, dir: &Path) -> Result<Vec<Subject>> {
    Ok(vec![
        caches::ours(&programs.gateway, origin, dir)?,
        caches::nginx(origin, dir)?,
        caches::varnish(origin, dir)?,
        caches::traffic_server(origin, dir)?,
        caches::pingora(&programs.pingora, origin, dir)?,
    ])
}

/// Measures hits. Each round begins with another server.
fn hits(programs: &Programs, quick: bool, dir: &Path, deadline: Instant) -> Result {
    let origin = caches::origin(ROWS, dir)?;
    let subjects = start(programs, &origin, dir)?;
    rounds::warm(ROWS, &subjects)?;
    let measured = Measured::take(ROWS, &subjects, quick, dir, deadline)?;
    let others: Vec<_> = (1..subjects.len()).map(|other| (0, other)).collect();
    measured.print(&others);
    Ok(())
}

/// Measures a thousand concurrent requests for one uncached response.
fn crowds(programs: &Programs, dir: &Path) -> Result {
    let (address, asked) = slow_origin()?;
    let origin = Subject::of("origin", address);
    let subjects = start(programs, &origin, dir)?;
    let mut cells = Vec::new();
    for subject in &subjects {
        let before = asked.load(Ordering::SeqCst);
        let (answered, took) = crowd(subject.address())?;
        cells.push([
            (asked.load(Ordering::SeqCst) - before).to_string(),
            answered.to_string(),
            format!("{:.1}", took.as_secs_f64()),
        ]);
    }
    let names: Vec<&str> = subjects.iter().map(Subject::name).collect();
    let rows = [
        "requests to the origin",
        "clients answered",
        "seconds until the last answer",
    ];
    println!(
        "{}",
        report::table(
            &format!("{CROWD} clients, one cold key"),
            &rows,
            &names,
            |row, column| cells[column][row].clone()
        )
    );
    Ok(())
}

/// A slow origin that counts requests.
fn slow_origin() -> Result<(SocketAddr, Arc<AtomicUsize>)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&asked);
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let counter = Arc::clone(&counter);
            thread::spawn(move || {
                let mut head = Vec::new();
                let mut byte = [0];
                while !head.ends_with(b"\r\n\r\n")
                    && stream.read(&mut byte).is_ok_and(|read| read == 1)
                {
                    head.push(byte[0]);
                }
                if head.ends_with(b"\r\n\r\n") {
                    counter.fetch_add(1, Ordering::SeqCst);
                    thread::sleep(ORIGIN_TAKES);
                    let answer = b"HTTP/1.1 200 OK\r\ncache-control: max-age=600\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello";
                    drop(stream.write_all(answer));
                }
            });
        }
    });
    Ok((address, asked))
}

/// Returns the number of correct responses, and the time they took.
fn crowd(address: SocketAddr) -> Result<(usize, Duration)> {
    let all = Arc::new(Barrier::new(CROWD + 1));
    let clients: Vec<_> = (0..CROWD)
        .map(|_| {
            let all = Arc::clone(&all);
            let client = move || {
                let connected = TcpStream::connect(address);
                all.wait();
                connected
                    .and_then(ask)
                    .is_ok_and(|answer| answer.ends_with(b"hello"))
            };
            thread::Builder::new().stack_size(128 << 10).spawn(client)
        })
        .collect::<std::io::Result<_>>()?;
    all.wait();
    let began = Instant::now();
    let answered = clients
        .into_iter()
        .map(|client| client.join().unwrap_or_default())
        .filter(|right| *right)
        .count();
    Ok((answered, began.elapsed()))
}

fn ask(mut stream: TcpStream) -> std::io::Result<Vec<u8>> {
    stream.set_read_timeout(Some(Duration::from_mins(1)))?;
    stream.write_all(b"GET /cold HTTP/1.1\r\nhost: bench\r\nconnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(answer)
}

/// Measures the memory of many small stored responses.
fn small(program: &Path, count: usize, seconds: u32, dir: &Path, deadline: Instant) -> Result {
    let origin = caches::origin(ROWS, dir)?;
    let script = dir.join("small.lua");
    let text = SMALL.replace("@COUNT@", &count.to_string());
    let mut cells = Vec::new();
    let subjects = [
        caches::ours(program, &origin, dir)?,
        caches::varnish(&origin, dir)?,
    ];
    for subject in &subjects {
        let before = subject.resident()?;
        let mut asked = 0;
        while asked < count && Instant::now() < deadline {
            fs::write(&script, text.replace("@ASKED@", &asked.to_string()))?;
            asked = (asked + load_small(subject, &script, seconds, dir)?).min(count);
        }
        let bytes = subject.resident()?.saturating_sub(before);
        cells.push([
            asked.to_string(),
            (bytes >> 20).to_string(),
            (bytes / asked.max(1) as u64).to_string(),
        ]);
    }
    let names: Vec<&str> = subjects.iter().map(Subject::name).collect();
    let rows = ["stored", "growth, MiB", "bytes per response"];
    println!(
        "{}",
        report::table("responses of 32 bytes", &rows, &names, |row, column| cells
            [column][row]
            .clone())
    );
    Ok(())
}

/// Sends requests until the time has passed, and returns their number.
fn load_small(subject: &Subject, script: &Path, seconds: u32, dir: &Path) -> Result<usize> {
    let output = Run::new("taskset", dir)
        .args([
            "-c",
            CLIENT_CORE,
            "wrk",
            "--threads",
            "1",
            "--connections",
            "32",
        ])
        .args(["--duration", &format!("{seconds}s"), "--script"])
        .args([script])
        .args([format!("http://{}", subject.address())])
        .output()?;
    let requests = output
        .lines()
        .find_map(|line| line.trim().split_once(" requests in ")?.0.parse().ok());
    requests
        .ok_or_else(|| format!("{}: wrk does not report requests\n{output}", subject.name()).into())
}
