//! External commands, without standard input and with a deadline. A command that misses it is killed with all its children.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::Result;

/// Interval between checks of a running command.
const POLL: Duration = Duration::from_millis(50);

/// A command that hasn't been started yet.
pub struct Run {
    command: Command,
}

impl Run {
    /// Returns a command that runs `program` in the directory `dir`.
    ///
    /// It doesn't inherit cargo's variables about this package. Some build scripts depend on them, and would run again
    /// whenever cargo is started in turn by this task and by hand.
    pub fn new(program: impl AsRef<OsStr>, dir: &Path) -> Self {
        let mut command = Command::new(program);
        command.current_dir(dir).stdin(Stdio::null());
        let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        let of_package = names.filter(|name| {
            ["CARGO_PKG_", "CARGO_MANIFEST_"]
                .iter()
                .any(|of| name.starts_with(of))
        });
        for name in of_package {
            command.env_remove(name);
        }
        Self { command }
    }

    /// Returns a command that runs this task's cargo in the directory `dir`, with arguments separated by spaces.
    pub fn cargo(args: &str, dir: &Path) -> Self {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        Self::new(cargo, dir).args(args.split_whitespace())
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.command.args(args);
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Removes an inherited environment variable.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        self.command.env_remove(name);
        self
    }

    /// Adds a standard input that ends when this task does.
    #[must_use]
    pub fn attached(mut self) -> Self {
        self.command.stdin(Stdio::piped());
        self
    }

    /// Runs to the end, with a standard input that ends when this task does.
    pub fn serve(self) -> Result {
        let shown = self.shown();
        let mut child = self
            .attached()
            .command
            .spawn()
            .map_err(|error| format!("{shown}: {error}"))?;
        // Waiting with the input still attached would close it.
        let input = child.stdin.take();
        let status = child.wait()?;
        drop(input);
        if status.success() {
            Ok(())
        } else {
            Err(format!("{status}: {shown}").into())
        }
    }

    /// Prints the command and runs it to the end, with its output on the terminal. Fails if the deadline passes.
    pub fn passes(self, deadline: Instant) -> Result {
        println!("$ {}", self.shown());
        self.spawn()?.passes(deadline)
    }

    /// Redirects all output to a file. Creates its folder.
    pub fn log_to(mut self, file: &Path) -> Result<Self> {
        if let Some(folder) = file.parent() {
            fs::create_dir_all(folder)?;
        }
        let file = File::create(file)?;
        self.command.stdout(file.try_clone()?).stderr(file);
        Ok(self)
    }

    /// Runs to the end and returns the standard output. There is no deadline.
    pub fn output(mut self) -> Result<String> {
        let output = self
            .command
            .output()
            .map_err(|error| format!("{}: {error}", self.shown()))?;
        if !output.status.success() {
            let reason = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(format!("{}: {}\n{reason}", output.status, self.shown()).into());
        }
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Starts the command in the background, without its standard output.
    pub fn start(mut self) -> Result<Running> {
        self.command.stdout(Stdio::null());
        self.spawn()
    }

    /// Starts the command in the background, with all output in a file.
    pub fn start_with_log(self, file: &Path) -> Result<Running> {
        self.log_to(file)?.spawn()
    }

    fn spawn(mut self) -> Result<Running> {
        let shown = self.shown();
        let child = self
            .command
            .spawn()
            .map_err(|error| format!("{shown}: {error}"))?;
        Ok(Running { child, shown })
    }

    /// Returns the command line, for messages.
    pub(crate) fn shown(&self) -> String {
        let program = Path::new(self.command.get_program())
            .file_name()
            .unwrap_or_default()
            .to_string_lossy();
        let args = self.command.get_args().map(OsStr::to_string_lossy);
        std::iter::once(program)
            .chain(args)
            .collect::<Vec<_>>()
            .join(" ")
    }
}

/// A command in the background, killed with all its children on drop.
pub struct Running {
    child: Child,
    shown: String,
}

impl Running {
    /// Waits until the command ends. Fails if the deadline passes.
    fn passes(mut self, deadline: Instant) -> Result {
        while Instant::now() < deadline {
            if self.has_passed()? {
                return Ok(());
            }
            std::thread::sleep(POLL);
        }
        Err(format!("stopped at the step's time limit: {}", self.shown).into())
    }

    /// Waits until the command ends, and meanwhile copies the log of its output to `shown` as it grows.
    pub(crate) fn follow(mut self, log: &Path, shown: &mut impl Write) -> Result {
        let mut log = File::open(log)?;
        loop {
            // Asked before the rest of the log is read, which is then complete.
            let passed = self.has_passed();
            io::copy(&mut log, shown)?;
            shown.flush()?;
            if passed? {
                return Ok(());
            }
            std::thread::sleep(POLL);
        }
    }

    /// Returns `false` while the command runs. Fails if it has failed.
    fn has_passed(&mut self) -> Result<bool> {
        match self.child.try_wait()? {
            Some(status) if status.success() => Ok(true),
            _ => self.still_runs().map(|()| false),
        }
    }

    /// Fails if the command has ended.
    pub fn still_runs(&mut self) -> Result {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => Err(format!("{status}: {}", self.shown).into()),
        }
    }

    /// Returns the CPU time of the command and its children in seconds.
    pub fn cpu(&self) -> Result<f64> {
        let ticks = self
            .processes()?
            .into_iter()
            .map(|process| ticks(process, [14, 15]))
            .sum::<Result<u32>>()?;
        seconds(ticks)
    }

    /// Returns the resident memory of the command and its children in bytes.
    pub fn resident(&self) -> Result<u64> {
        self.processes()?.into_iter().map(resident).sum()
    }

    fn processes(&self) -> Result<Vec<u32>> {
        let mut processes = descendants(self.child.id())?;
        processes.push(self.child.id());
        Ok(processes)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_)))
            && let Err(error) = kill_tree(&mut self.child)
        {
            println!("process {} may still run: {error}", self.child.id());
        }
    }
}

/// Returns the path of the last executable in cargo's messages (`--message-format json-render-diagnostics`).
pub fn executable(messages: &str) -> Option<PathBuf> {
    messages.lines().rev().find_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        message["executable"].as_str().map(PathBuf::from)
    })
}

/// Returns the CPU time in seconds of all commands that have ended, with their children.
pub(crate) fn cpu_of_ended() -> Result<f64> {
    seconds(ticks(std::process::id(), [16, 17])?)
}

fn seconds(ticks: u32) -> Result<f64> {
    let ticks_per_second: u32 = Run::new("getconf", Path::new("."))
        .args(["CLK_TCK"])
        .output()?
        .trim()
        .parse()?;
    Ok(f64::from(ticks) / f64::from(ticks_per_second))
}

/// Returns the sum of two fields of proc(5)'s `stat`, user and system time in ticks: 14 and 15 of the process, 16 and 17 of
/// its ended children.
fn ticks(process: u32, fields_of: [usize; 2]) -> Result<u32> {
    let text = fs::read_to_string(format!("/proc/{process}/stat"))?;
    // The second field is a name in parentheses, which may contain spaces.
    let fields: Vec<&str> = text
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    let of = |field: usize| -> Result<u32> {
        Ok(fields
            .get(field - 3)
            .ok_or("no processor time in /proc")?
            .parse()?)
    };
    Ok(of(fields_of[0])? + of(fields_of[1])?)
}

/// Returns the resident memory of a process in bytes.
fn resident(process: u32) -> Result<u64> {
    let text = fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .ok_or("no VmRSS in /proc")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
}

/// Kills a command and its children. Killing only cargo would leave its tests running.
fn kill_tree(child: &mut Child) -> Result {
    let below = descendants(child.id()).unwrap_or_default();
    child.kill()?;
    if !below.is_empty() {
        Command::new("kill")
            .arg("-KILL")
            .args(below.iter().map(u32::to_string))
            .status()?;
    }
    child.wait()?;
    Ok(())
}

fn descendants(root: u32) -> Result<Vec<u32>> {
    let table = Run::new("ps", Path::new("."))
        .args(["-A", "-o", "pid=", "-o", "ppid="])
        .output()?;
    let parents: Vec<(u32, u32)> = table.lines().filter_map(process).collect();
    let mut found = vec![root];
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        found.extend(
            parents
                .iter()
                .filter(|(_, its_parent)| *its_parent == parent)
                .map(|(pid, _)| pid),
        );
        next += 1;
    }
    Ok(found.split_off(1))
}

/// Parses a line of `ps`: a process and its parent.
fn process(line: &str) -> Option<(u32, u32)> {
    let (pid, parent) = line.trim().split_once(char::is_whitespace)?;
    Some((pid.parse().ok()?, parent.trim().parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read};
    use std::sync::mpsc;

    use super::*;

    fn shell(script: &str) -> Run {
        Run::new("sh", Path::new(".")).args(["-c", script])
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_mins(1)
    }

    #[test]
    fn a_failure_names_the_command() {
        let error = shell("exit 3").passes(soon()).unwrap_err().to_string();
        assert!(
            error.contains("exit status: 3") && error.contains("sh -c exit 3"),
            "{error}"
        );
    }

    #[test]
    fn a_missing_program_is_an_error() {
        assert!(
            Run::new("no-such-program-here", Path::new("."))
                .passes(soon())
                .is_err()
        );
    }

    #[test]
    fn a_log_may_be_in_a_new_folder() {
        let folder = std::env::temp_dir().join(format!("xtask-log-{}", std::process::id()));
        let log = folder.join("steps/log");
        shell("echo said")
            .log_to(&log)
            .unwrap()
            .passes(soon())
            .unwrap();
        assert_eq!(fs::read_to_string(&log).unwrap(), "said\n");
        fs::remove_dir_all(&folder).unwrap();
    }

    /// Creates a file when the first output arrives.
    struct Answering<'a>(&'a Path, Vec<u8>);

    impl Write for Answering<'_> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            File::create(self.0)?;
            self.1.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_log_is_shown_while_the_command_runs() {
        let folder = std::env::temp_dir().join(format!("xtask-follow-{}", std::process::id()));
        let (log, answer) = (folder.join("log"), folder.join("answer"));
        let script = format!(
            "echo first; for n in $(seq 600); do test -e {0} && echo last && exit; sleep 0.1; done; exit 1",
            answer.display()
        );
        let mut shown = Answering(&answer, Vec::new());
        shell(&script)
            .start_with_log(&log)
            .unwrap()
            .follow(&log, &mut shown)
            .unwrap();
        assert_eq!(shown.1, b"first\nlast\n");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn standard_input_is_empty() {
        assert_eq!(shell("cat; echo end").output().unwrap(), "end\n");
    }

    #[test]
    fn a_passed_deadline_stops_the_command() {
        let error = shell("sleep 600")
            .passes(Instant::now())
            .unwrap_err()
            .to_string();
        assert!(error.contains("time limit"), "{error}");
    }

    #[test]
    fn cpu_time_includes_children() {
        let running = shell("sh -c 'while :; do :; done' & wait").start().unwrap();
        let (before, deadline) = (running.cpu().unwrap(), soon());
        while running.cpu().unwrap() <= before {
            assert!(Instant::now() < deadline, "the child's time isn't counted");
            std::thread::sleep(POLL);
        }
    }

    #[test]
    fn grandchildren_are_killed_too() {
        let mut run = shell("sleep 600 & echo started; wait");
        let mut child = run.command.stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut String::new()).unwrap();
        kill_tree(&mut child).unwrap();
        // The pipe ends once no process holds it.
        let (ended, end) = mpsc::channel();
        std::thread::spawn(move || ended.send(output.read_to_end(&mut Vec::new())));
        end.recv_timeout(Duration::from_mins(1))
            .expect("the grandchild is still running")
            .unwrap();
    }
}
