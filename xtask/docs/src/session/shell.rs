//! A shell that runs one command after the other, and keeps its variables.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use xtask::Result;

/// Ends the output of each command.
const END: &str = "\u{1e}";

/// A running shell. It ends when it is dropped.
pub(super) struct Shell {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Shell {
    /// Starts a shell in a folder, which is also its home. It finds `program` by its name.
    pub(super) fn start(folder: &Path, program: &Path) -> Result<Self> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = program
            .parent()
            .map(Path::to_owned)
            .into_iter()
            .chain(std::env::split_paths(&path));
        let mut child = Command::new("bash")
            .args(["--noprofile", "--norc"])
            .current_dir(folder)
            .env("PATH", std::env::join_paths(folders)?)
            .env("HOME", folder)
            .env("LC_ALL", "C.UTF-8")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let output = BufReader::new(output.ok_or("the shell has no output")?);
        let mut shell = Self {
            child,
            input,
            output,
        };
        shell.run("trap 'kill $(jobs -p) 2>/dev/null' EXIT")?;
        Ok(shell)
    }

    /// Runs a command, and returns what it prints. The next command finds its exit code in `$?`.
    pub(super) fn run(&mut self, command: &str) -> Result<String> {
        let input = self.input.as_mut().ok_or("the shell has no input")?;
        writeln!(
            input,
            "{{ {command}\n}} </dev/null 2>&1\ncode=$?; printf '{END}\\n'; (exit $code)"
        )?;
        input.flush()?;
        let mut output = String::new();
        loop {
            if self.output.read_line(&mut output)? == 0 {
                return Err(format!("the shell ended in `{command}`").into());
            }
            if let Some(output) = output.strip_suffix(&format!("{END}\n")) {
                return Ok(output.to_owned());
            }
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // The end of its input ends it.
        self.input = None;
        drop(self.child.wait());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_and_exit_codes_last() {
        let folder = tempfile::tempdir().unwrap();
        let mut shell = Shell::start(folder.path(), Path::new("/nowhere/ifmatch")).unwrap();
        assert_eq!(shell.run("name=value; printf partial").unwrap(), "partial");
        assert_eq!(shell.run("echo $name >&2; (exit 7)").unwrap(), "value\n");
        assert_eq!(shell.run("echo $?").unwrap(), "7\n");
        assert!(shell.run("exit").is_err());
    }
}
