//! Named steps with time limits. They run in order up to the first failure, and end with a table of times.
//!
//! Steps that mostly wait, for a server or for one long link, can run beside the others in a second process. Its output goes
//! to a file, and is printed once the others have ended.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use crate::Result;
use crate::command::{self, Run};
use crate::workspace::Workspace;

/// Time limit of a step, the last resort on a machine that is busy with much else: each wait in a test has a limit of its own.
/// Where the whole command is stopped before, as in CI after 90 minutes, its output shows what stands still.
const LIMIT: Duration = Duration::from_hours(3);

/// Time limit of a build that is a task of its own.
pub(crate) const BUILD: Duration = Duration::from_hours(1);

/// Time limit of an installation.
const INSTALLATION: Duration = Duration::from_mins(15);

/// How long another installation may hold the locks of apt-get, for example another step's, or the system's daily one.
const LOCKED: Duration = Duration::from_mins(5);

/// A check.
pub(crate) struct Step {
    /// Name for `--only`.
    pub name: &'static str,
    /// Description of the check.
    pub about: &'static str,
    /// External programs, required before the first step starts.
    pub needs: &'static [Tool],
    /// The check itself.
    pub run: fn(&Context<'_>) -> Result,
}

/// An external program.
pub struct Tool {
    /// Name in messages.
    pub name: &'static str,
    /// Command that succeeds if the program is installed.
    pub probe: &'static [&'static str],
    /// Command that installs the program.
    pub install: &'static str,
}

/// Arguments of a step.
pub struct Context<'a> {
    /// The workspace under test.
    pub workspace: &'a Workspace,
    /// End of the step's time limit.
    pub deadline: Instant,
}

impl Context<'_> {
    /// Removes a folder of the target directory that no other step uses, if the variable `CI` is set: there, nothing is run
    /// twice, and disks are small.
    pub fn discard(&self, folder: &str) {
        if std::env::var_os("CI").is_some() {
            // What remains takes space, and does no harm.
            let _ = std::fs::remove_dir_all(self.workspace.target().join(folder));
        }
    }
}

/// Runs the steps while another process runs the command `second`, with its output in a file until the steps have ended.
pub(crate) fn run_beside(steps: &[&Step], second: Run, workspace: &Workspace) -> Result {
    let log = workspace
        .target()
        .join(format!("beside-{}.log", std::process::id()));
    println!(
        "\n== beside the next steps: {}; its output is in {}",
        second.shown(),
        log.display()
    );
    let second = second.start_with_log(&log)?;
    run_in_order(steps, workspace)?;
    println!("\n== {}", log.display());
    let passed = second.follow(&log, &mut io::stdout());
    std::fs::remove_file(&log)?;
    passed
}

/// Checks that the programs are there that the steps need, or installs them.
pub(crate) fn require(steps: &[&Step], workspace: &Workspace) -> Result {
    steps
        .iter()
        .flat_map(|step| step.needs)
        .try_for_each(|tool| tool.require(workspace))
}

/// Runs the steps in order. The error names the step that failed, and the command to run it alone.
pub(crate) fn run_in_order(steps: &[&Step], workspace: &Workspace) -> Result {
    let mut times = Vec::new();
    let failure = steps.iter().find_map(|step| {
        println!("\n== {}: {}", step.name, step.about);
        let start = Instant::now();
        let context = Context {
            workspace,
            deadline: start + LIMIT,
        };
        let cpu = command::cpu_of_ended().unwrap_or_default();
        let done = (step.run)(&context);
        let cpu = command::cpu_of_ended().unwrap_or_default() - cpu;
        times.push(Time {
            step: step.name,
            real: start.elapsed().as_secs_f64(),
            cpu,
            passed: done.is_ok(),
        });
        done.err().map(|error| {
            format!(
                "{}: {error}\nto run it alone: cargo xtask ci --only {0}",
                step.name
            )
        })
    });
    summarise(&times, steps.len());
    failure.map_or(Ok(()), |error| Err(error.into()))
}

impl Tool {
    /// Installs the program if it is missing, where that is possible: with apt-get as root, and with rustup. On a terminal, it
    /// asks first. Otherwise the error names the command to run.
    pub fn require(&self, workspace: &Workspace) -> Result {
        if self.is_there(workspace)
            || (self.may_install() && self.install(workspace)? && self.is_there(workspace))
        {
            return Ok(());
        }
        Err(format!(
            "{} is missing. Install it with: {}",
            self.name, self.install
        )
        .into())
    }

    fn is_there(&self, workspace: &Workspace) -> bool {
        let Some((program, args)) = self.probe.split_first() else {
            return true;
        };
        Run::new(program, workspace.root())
            .args(args)
            .output()
            .is_ok()
    }

    /// Asks on a terminal. Without one, as in CI, installation needs no confirmation.
    fn may_install(&self) -> bool {
        if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
            return true;
        }
        print!(
            "{} is missing. Run `{}` now? [y/N] ",
            self.name, self.install
        );
        let mut answer = String::new();
        let is_read = io::stdout()
            .flush()
            .and_then(|()| io::stdin().read_line(&mut answer))
            .is_ok();
        is_read && ["y", "yes"].contains(&answer.trim().to_lowercase().as_str())
    }

    /// Runs the command that installs the program, printing each step. Returns `false` if it can't run here.
    fn install(&self, workspace: &Workspace) -> Result<bool> {
        let run = |program: &str, args: &str| {
            Run::new(program, workspace.root()).args(args.split_whitespace())
        };
        let deadline = Instant::now() + INSTALLATION;
        if let Some(args) = self.install.strip_prefix("rustup ") {
            return Ok(run("rustup", "--version").output().is_ok()
                && run("rustup", args).passes(deadline).is_ok());
        }
        let Some(packages) = self.install.strip_prefix("apt-get install ") else {
            return Ok(false);
        };
        let is_root = run("id", "-u").output().is_ok_and(|id| id.trim() == "0");
        if !is_root || run("apt-get", "--version").output().is_err() {
            return Ok(false);
        }
        // Unlike an installation, an update doesn't wait for the lock.
        let locked = Instant::now() + LOCKED;
        while let Err(error) = run("apt-get", "update -qq").passes(deadline) {
            if Instant::now() > locked {
                return Err(error);
            }
            std::thread::sleep(Duration::from_secs(5));
        }
        let wait = format!("DPkg::Lock::Timeout={}", LOCKED.as_secs());
        let quiet =
            format!("install -qq --yes --no-install-recommends -o Dpkg::Use-Pty=0 -o {wait}");
        run("apt-get", &format!("{quiet} {packages}")).passes(deadline)?;
        Ok(true)
    }
}

/// Seconds that a step took.
struct Time {
    step: &'static str,
    real: f64,
    /// CPU time of its commands: on a busy machine, the better measure.
    cpu: f64,
    passed: bool,
}

fn summarise(times: &[Time], planned: usize) {
    println!("\n== summary{:>20}{:>12}", "time", "CPU time");
    let line = |name: &str, real: f64, cpu: f64, result: &str| {
        println!("{name:<18} {real:>9.1} s {cpu:>9.1} s  {result}");
    };
    for Time {
        step,
        real,
        cpu,
        passed,
    } in times
    {
        line(step, *real, *cpu, if *passed { "ok" } else { "FAILED" });
    }
    let (real, cpu) = times.iter().fold((0.0, 0.0), |(real, cpu), time| {
        (real + time.real, cpu + time.cpu)
    });
    line(
        "total",
        real,
        cpu,
        &format!("{} of {planned} steps run", times.len()),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSES: Step = Step {
        name: "passes",
        about: "",
        needs: &[],
        run: |_| Ok(()),
    };
    const FAILS: Step = Step {
        name: "fails",
        about: "",
        needs: &[],
        run: |_| Err("broken".into()),
    };
    const LACKS: Step = Step {
        name: "lacks",
        about: "",
        needs: &[Tool {
            name: "no-such-program-here",
            probe: &["no-such-program-here"],
            install: "get program",
        }],
        run: |_| Ok(()),
    };

    fn run(steps: &[&Step]) -> std::result::Result<(), String> {
        let workspace = Workspace::load().unwrap();
        require(steps, &workspace)
            .and_then(|()| run_in_order(steps, &workspace))
            .map_err(|error| error.to_string())
    }

    fn run_beside(steps: &[&Step], second: &str) -> std::result::Result<(), String> {
        let workspace = Workspace::load().unwrap();
        let second = Run::new("sh", workspace.root()).args(["-c", second]);
        super::run_beside(steps, second, &workspace).map_err(|error| error.to_string())
    }

    #[test]
    fn the_second_process_must_pass_too() {
        assert_eq!(run_beside(&[&PASSES], "exit 0"), Ok(()));
        assert!(
            run_beside(&[&PASSES], "exit 3")
                .unwrap_err()
                .contains("exit status: 3")
        );
    }

    #[test]
    fn a_failure_does_not_wait_for_the_second_process() {
        let error = run_beside(&[&FAILS], "sleep 600").unwrap_err();
        assert!(error.contains("fails: broken"), "{error}");
    }

    #[test]
    fn all_must_pass() {
        assert_eq!(run(&[&PASSES, &PASSES]), Ok(()));
    }

    #[test]
    fn a_failure_names_the_command_to_repeat_it() {
        let error = run(&[&PASSES, &FAILS, &PASSES]).unwrap_err();
        assert!(
            error.contains("fails: broken") && error.contains("--only fails"),
            "{error}"
        );
    }

    #[test]
    fn a_missing_tool_fails_before_the_first_step_and_names_its_installation() {
        let error = run(&[&FAILS, &LACKS]).unwrap_err();
        assert_eq!(
            error,
            "no-such-program-here is missing. Install it with: get program"
        );
    }
}
