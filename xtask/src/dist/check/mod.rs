//! Checks of the packages as their users would see them: lintian, a fresh Debian, other systems, and the image's files alone.

mod session;
mod system;

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::{Made, oci};
use crate::Result;
use crate::command::{Run, Running};
use crate::listening::free_address;
use crate::step::Tool;
use crate::workspace::Workspace;
use system::{System, soon};

/// Maximum exposure of the service by `systemd-analyze security`, in tenths.
const MAX_EXPOSURE: &str = "--threshold=16";

const TOOLS: [Tool; 6] = [
    Tool { name: "curl", probe: &["curl", "--version"], install: "apt-get install curl" },
    Tool { name: "debootstrap", probe: &["debootstrap", "--version"], install: "apt-get install debootstrap" },
    Tool { name: "dpkg-deb", probe: &["dpkg-deb", "--version"], install: "apt-get install dpkg" },
    Tool { name: "lintian", probe: &["lintian", "--version"], install: "apt-get install lintian" },
    Tool {
        name: "systemd-nspawn",
        probe: &["systemd-nspawn", "--version"],
        install: "apt-get install systemd-container",
    },
    Tool { name: "systemd-analyze", probe: &["systemd-analyze", "--version"], install: "apt-get install systemd" },
];

/// Checks that the user is root and has the tools, or installs them.
pub(super) fn require(workspace: &Workspace) -> Result {
    if Run::new("id", workspace.root()).args(["-u"]).output()?.trim() != "0" {
        return Err("--check installs packages in systems of its own: run it as root".into());
    }
    TOOLS.iter().try_for_each(|tool| tool.require(workspace))
}

/// Checks what was made.
pub(super) fn run(workspace: &Workspace, made: &Made, others: &[PathBuf]) -> Result {
    let root = workspace.root();
    let roots = workspace.target().join("dist-roots");
    fs::create_dir_all(&roots)?;
    Run::new("lintian", root).args(["--allow-root", "--fail-on", "error"]).args([&made.package]).passes(soon())?;
    let analysis = ["security", "--offline=true", "--no-pager", MAX_EXPOSURE, "packaging/systemd/ifmatch.service"];
    let exposure = Run::new("systemd-analyze", root).args(analysis).output()?;
    println!("{}", exposure.trim().lines().last().unwrap_or_default());

    let debian = || System::debian("bookworm", "adduser,dbus,systemd,systemd-sysv", &roots);
    installed(&debian()?, made, root)?;
    booted(&debian()?, made)?;
    match System::debian("bullseye", "adduser", &roots) {
        Ok(older) => alone(&older, &made.binary)?,
        Err(error) => println!("Debian 11: not run: {error}"),
    }
    for other in others {
        alone(&System::copy(other, &roots)?, &made.binary)?;
    }
    if others.is_empty() {
        println!("Alpine: not run. Unpack its minimal root file system, and name the folder with --root");
    }
    image(made, &roots)
}

/// Installs the package, starts its service's command as its user, and removes it. The data must stay.
fn installed(debian: &System, made: &Made, root: &Path) -> Result {
    println!("\n== {}: the package", debian.name());
    let start = Instant::now();
    fs::copy(&made.package, debian.path("ifmatch.deb"))?;
    debian.run(&["dpkg", "--install", "/ifmatch.deb"])?;
    let unit = fs::read_to_string(debian.path("lib/systemd/system/ifmatch.service"))?;
    let setting = |name: &str| {
        let found = unit.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        found.ok_or_else(|| format!("the service has no {name}"))
    };
    let user = setting("User")?;
    // As systemd does for StateDirectory.
    debian.run(&["install", "-d", "-o", user, "-g", user, "-m", setting("StateDirectoryMode")?, "/var/lib/ifmatch"])?;
    let command: Vec<&str> = setting("ExecStart")?.split_whitespace().collect();
    let address = free_address()?.to_string();
    let settings = [("IFMATCH_LISTEN", address.as_str()), ("IFMATCH_LISTEN_TABLES", "off")];
    let gateway = serve(debian, user, &command, &settings)?;
    let first = session::run(root, &address)?;
    println!("from the installation to the first 201: {:.1} s", (first - start).as_secs_f64());
    drop(gateway);
    debian.run(&["dpkg", "--remove", "ifmatch"])?;
    must(!debian.path("usr/bin/ifmatch").exists(), "removing the package must remove the binary")?;
    must(debian.path("etc/ifmatch/ifmatch.toml").exists(), "removing the package must keep the settings")?;
    debian.run(&["dpkg", "--purge", "ifmatch"])?;
    must(!debian.path("etc/ifmatch").exists(), "purging the package must remove the settings")?;
    must(debian.path("var/lib/ifmatch/bodies").is_dir(), "purging the package must keep the data")
}

/// Boots the system, and installs the package there, so that systemd itself runs the service in its sandbox.
fn booted(debian: &System, made: &Made) -> Result {
    println!("\n== {}: the service", debian.name());
    fs::copy(&made.package, debian.path("ifmatch.deb"))?;
    fs::write(debian.path("check.sh"), include_str!("booted.sh"))?;
    fs::write(debian.path("etc/systemd/system/check.service"), CHECK)?;
    debian.run(&["systemctl", "enable", "check.service"])?;
    let end = debian.boot();
    let output = fs::read_to_string(debian.path("check.log"))?;
    println!("{output}");
    must(output.ends_with("passed\n"), "the service must start, reload and leave its data")?;
    end
}

/// A service that runs a script and switches the system off.
const CHECK: &str = "\
[Unit]
After=multi-user.target

[Service]
Type=oneshot
ExecStart=/bin/sh -ex /check.sh
ExecStopPost=/bin/systemctl poweroff
StandardOutput=append:/check.log
StandardError=append:/check.log

[Install]
WantedBy=multi-user.target
";

/// Runs the binary alone in a system.
fn alone(system: &System, binary: &Path) -> Result {
    println!("\n== {}: the binary", system.name());
    fs::copy(binary, system.path("ifmatch"))?;
    fs::write(system.path("etc/hosts"), "127.0.0.1 localhost\n")?;
    let address = free_address()?;
    let settings = [("IFMATCH_LISTEN", address.to_string())];
    let settings = settings.each_ref().map(|(name, value)| (*name, value.as_str()));
    let gateway = serve(system, "nobody", &["/ifmatch", "serve", "--store", "memory://"], &settings)?;
    // By name, so that the C library resolves it.
    let url = format!("http://localhost:{}", address.port());
    system.run(&["/ifmatch", "health", "--ready", "--url", &url])?;
    drop(gateway);
    Ok(())
}

/// Runs the image's command as its user, with nothing but its files.
fn image(made: &Made, roots: &Path) -> Result {
    println!("\n== {}", made.image.display());
    let (config, layers) = oci::read(&made.image, made.architecture)?;
    let system = System::empty("image", roots)?;
    for layer in layers {
        let mut archive = tar::Archive::new(layer.as_slice());
        archive.set_preserve_permissions(true);
        archive.set_preserve_ownerships(true);
        archive.unpack(system.path(""))?;
    }
    let config = &config["config"];
    let words = |field: &str| config[field].as_array().into_iter().flatten().filter_map(|word| word.as_str());
    let command: Vec<&str> = words("Entrypoint").chain(words("Cmd")).collect();
    let address = free_address()?.to_string();
    let user = config["User"].as_str().ok_or("the image has no user")?;
    let gateway = serve(&system, user, &command, &[("IFMATCH_LISTEN", &address)])?;
    let test = config["Healthcheck"]["Test"].as_array().into_iter().flatten().skip(1).filter_map(|word| word.as_str());
    let url = format!("http://{address}");
    system.run(&test.chain(["--ready", "--url", &url]).collect::<Vec<_>>())?;
    drop(gateway);
    Ok(())
}

/// Starts a gateway, and waits until it listens on `IFMATCH_LISTEN`.
fn serve(system: &System, user: &str, command: &[&str], settings: &[(&str, &str)]) -> Result<Running> {
    let user = if user.contains(':') { user.to_owned() } else { format!("{user}:") };
    let mut run = system.command(&[&format!("--userspec={user}")], command);
    for (name, value) in settings {
        run = run.env(name, value);
    }
    println!("$ {} as {user}", command.join(" "));
    let log = system.log();
    let mut running = run.start_with_log(&log)?;
    let (_, address) = settings.iter().find(|(name, _)| *name == "IFMATCH_LISTEN").ok_or("no address to listen on")?;
    let end = soon();
    while TcpStream::connect(address).is_err() {
        if !running.is_running() || Instant::now() > end {
            return Err(format!("the gateway does not listen:\n{}", fs::read_to_string(&log)?).into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(running)
}

fn must(holds: bool, rule: &str) -> Result {
    if holds { Ok(()) } else { Err(rule.into()) }
}
