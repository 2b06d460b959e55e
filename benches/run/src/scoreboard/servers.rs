//! The servers of the scoreboard, each on a free port. Their configurations are in tests/scoreboard.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::{Site, s3};
use crate::exchange::ask;
use crate::peers::NGINX_TOOL;
use xtask::command::{Run, Running};
use xtask::sdk::{self, ACCOUNT, KEY, PYTHON};
use xtask::step::Tool;
use xtask::worker::{self, Served};
use xtask::{Result, listening, wasm};

/// A server that can be checked.
pub(super) struct Server {
    pub(super) name: &'static str,
    pub(super) part: Part,
    pub(super) needs: &'static [Tool],
    /// Starts the server with a folder for its files.
    pub(super) start: fn(&Site<'_>, &Path) -> Result<Started>,
}

/// The part of the page with the results of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Conditions over HTTP.
    Http,
    /// Conditions of S3.
    S3,
}

/// A running server, stopped on drop.
pub(super) struct Started {
    /// URL of a folder or container that exists.
    pub(super) url: String,
    /// Header fields that the server needs in all requests.
    pub(super) headers: &'static [&'static str],
    /// Variables of the check's environment.
    pub(super) env: Vec<(&'static str, String)>,
    /// Command that prints the version.
    pub(super) version: String,
    /// Its processes.
    pub(super) running: Vec<Running>,
}

const APACHE: Tool = Tool {
    name: "Apache",
    probe: &["apache2", "-v"],
    install: "apt-get install apache2-bin",
};
const LIGHTTPD: Tool = Tool {
    name: "lighttpd with mod_webdav",
    probe: &[
        "sh",
        "-c",
        "lighttpd -v && ls /usr/lib/lighttpd/mod_webdav.so",
    ],
    install: "apt-get install lighttpd lighttpd-mod-webdav",
};
const RCLONE: Tool = Tool {
    name: "rclone",
    probe: &["rclone", "version"],
    install: "apt-get install rclone",
};
const NPM: Tool = Tool {
    name: "npm",
    probe: &["npm", "--version"],
    install: "apt-get install npm",
};

/// All servers, in the order of the page.
pub(super) const SERVERS: [Server; 14] = [
    Server {
        name: "ifmatch serve",
        part: Part::Http,
        needs: &[],
        start: gateway,
    },
    Server {
        name: "ifmatch Worker",
        part: Part::Http,
        needs: &[NPM, wasm::TOOLCHAIN],
        start: worker,
    },
    Server {
        name: "ifmatch proxy, nginx behind it",
        part: Part::Http,
        needs: &[NGINX_TOOL],
        start: proxy,
    },
    Server {
        name: "nginx",
        part: Part::Http,
        needs: &[NGINX_TOOL],
        start: nginx,
    },
    Server {
        name: "Apache",
        part: Part::Http,
        needs: &[APACHE],
        start: apache,
    },
    Server {
        name: "lighttpd",
        part: Part::Http,
        needs: &[LIGHTTPD],
        start: lighttpd,
    },
    Server {
        name: "rclone serve webdav",
        part: Part::Http,
        needs: &[RCLONE],
        start: rclone,
    },
    Server {
        name: "Azurite",
        part: Part::Http,
        needs: &[NPM, PYTHON],
        start: azurite,
    },
    Server {
        name: "moto S3",
        part: Part::Http,
        needs: &[PYTHON],
        start: moto,
    },
    Server {
        name: "ifmatch serve for S3",
        part: Part::S3,
        needs: &[],
        start: s3::gateway,
    },
    Server {
        name: "ifmatch serve, s3rver behind it",
        part: Part::S3,
        needs: &[NPM],
        start: s3::before_s3rver,
    },
    Server {
        name: "moto",
        part: Part::S3,
        needs: &[PYTHON],
        start: s3::moto,
    },
    Server {
        name: "s3rver",
        part: Part::S3,
        needs: &[NPM],
        start: s3::s3rver,
    },
    Server {
        name: "s3s-fs",
        part: Part::S3,
        needs: &[],
        start: s3::s3s_fs,
    },
];

/// A signature that moto doesn't verify. Unsigned requests would need a public bucket.
const SIGNATURE: &str = "authorization: AWS4-HMAC-SHA256 Credential=test/20200101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0";
/// Where Debian keeps Apache's modules.
const APACHE_MODULES: &str = "/usr/lib/apache2/modules";

fn gateway(site: &Site<'_>, folder: &Path) -> Result<Started> {
    let address = listening::free_address()?;
    let listen = address.to_string();
    let run =
        Run::new(&site.gateway, folder).args(["serve", "--listen", &listen, "--data", "files"]);
    started(
        "ifmatch",
        address,
        "/box",
        &version(&site.gateway),
        vec![run.start()?],
    )
}

fn proxy(site: &Site<'_>, folder: &Path) -> Result<Started> {
    let upstream = nginx(site, folder)?;
    let address = listening::free_address()?;
    let listen = address.to_string();
    let run = Run::new(&site.gateway, folder).args([
        "proxy",
        "--guard-writes",
        "--listen",
        &listen,
        "--upstream",
        upstream.url.trim_end_matches('/'),
    ]);
    let mut running = upstream.running;
    running.push(run.start()?);
    started(
        "ifmatch proxy",
        address,
        "/",
        &version(&site.gateway),
        running,
    )
}

/// Returns the command that prints the gateway's version.
pub(super) fn version(gateway: &Path) -> String {
    format!("{} --version", gateway.display())
}

fn worker(site: &Site<'_>, folder: &Path) -> Result<Started> {
    let modules = worker::build(site.context.workspace, site.context.deadline)?;
    let Served { blobs, running, .. } =
        Served::start(&site.context, &modules, &folder.join("worker.log"))?;
    started(
        "the Worker",
        blobs,
        "/box",
        &version(&site.gateway),
        vec![running],
    )
}

fn nginx(site: &Site<'_>, folder: &Path) -> Result<Started> {
    let address = listening::free_address()?;
    let file = configuration(site, folder, "nginx.conf", address)?;
    let run = Run::new("nginx", folder).args(["-c".as_ref(), file.as_os_str()]);
    started(
        "nginx",
        address,
        "/",
        "nginx -v",
        vec![run.start_with_log(&folder.join("output.log"))?],
    )
}

fn apache(site: &Site<'_>, folder: &Path) -> Result<Started> {
    let address = listening::free_address()?;
    let file = configuration(site, folder, "apache.conf", address)?;
    let run = Run::new("apache2", folder).args([
        "-DFOREGROUND".as_ref(),
        "-f".as_ref(),
        file.as_os_str(),
    ]);
    started(
        "Apache",
        address,
        "/",
        "apache2 -v",
        vec![run.start_with_log(&folder.join("output.log"))?],
    )
}

fn lighttpd(site: &Site<'_>, folder: &Path) -> Result<Started> {
    let address = listening::free_address()?;
    let file = configuration(site, folder, "lighttpd.conf", address)?;
    let run = Run::new("lighttpd", folder).args(["-D".as_ref(), "-f".as_ref(), file.as_os_str()]);
    started(
        "lighttpd",
        address,
        "/",
        "lighttpd -v",
        vec![run.start_with_log(&folder.join("output.log"))?],
    )
}

fn rclone(_site: &Site<'_>, folder: &Path) -> Result<Started> {
    let address = listening::free_address()?;
    let run = Run::new("rclone", folder).args([
        "serve",
        "webdav",
        "files",
        "--addr",
        &address.to_string(),
    ]);
    started(
        "rclone",
        address,
        "/",
        "rclone version",
        vec![run.start_with_log(&folder.join("output.log"))?],
    )
}

fn azurite(site: &Site<'_>, folder: &Path) -> Result<Started> {
    let server = sdk::start_azurite(&site.context, folder)?;
    let script = site
        .context
        .workspace
        .root()
        .join("tests/scoreboard/container.py");
    let endpoint = format!("http://{}/{ACCOUNT}", server.blobs);
    let url = Run::new("python3", folder)
        .args([script])
        .args([endpoint.as_str(), ACCOUNT, KEY, "box"])
        .output()?;
    let lock = site
        .context
        .workspace
        .root()
        .join("tests/azurite/package.json");
    Ok(Started {
        url: url.trim().to_owned(),
        headers: &["x-ms-blob-type: BlockBlob", "x-ms-version: 2021-12-02"],
        env: Vec::new(),
        version: format!("grep -o '\"azurite.*' {}", lock.display()),
        running: server.running,
    })
}

pub(super) fn moto(site: &Site<'_>, folder: &Path) -> Result<Started> {
    let dir = site.context.workspace.target().join("scoreboard");
    fs::create_dir_all(&dir)?;
    let python = sdk::python(&site.context, &dir, "tests/scoreboard/requirements.txt")?;
    let address = listening::free_address()?;
    let (host, port) = (address.ip().to_string(), address.port().to_string());
    let run = Run::new(&python, folder).args(["-m", "moto.server", "-H", &host, "-p", &port]);
    let running = vec![run.start_with_log(&folder.join("output.log"))?];
    let version = format!(
        "{} -m pip list --format freeze | grep moto",
        python.display()
    );
    let started = started("moto", address, "/box", &version, running)?;
    // The bucket.
    put(address, "/box")?;
    Ok(Started {
        headers: &[SIGNATURE],
        ..started
    })
}

/// Waits until a server listens.
pub(super) fn started(
    name: &str,
    address: SocketAddr,
    path: &str,
    version: &str,
    mut running: Vec<Running>,
) -> Result<Started> {
    listening::wait(name, address, || {
        running.iter_mut().try_for_each(Running::still_runs)
    })?;
    Ok(Started {
        url: format!("http://{address}{path}"),
        headers: &[],
        env: Vec::new(),
        version: version.to_owned(),
        running,
    })
}

/// Fills in a configuration of the repository, and returns the file.
fn configuration(
    site: &Site<'_>,
    folder: &Path,
    name: &str,
    address: SocketAddr,
) -> Result<PathBuf> {
    let mut text = fs::read_to_string(
        site.context
            .workspace
            .root()
            .join("tests/scoreboard")
            .join(name),
    )?;
    for (word, value) in [
        ("{folder}", folder.display().to_string()),
        ("{address}", address.to_string()),
        ("{host}", address.ip().to_string()),
        ("{port}", address.port().to_string()),
        ("{modules}", APACHE_MODULES.to_owned()),
    ] {
        text = text.replace(word, &value);
    }
    let file = folder.join(name);
    fs::write(&file, text)?;
    Ok(file)
}

/// Sends a PUT without content.
pub(crate) fn put(address: SocketAddr, path: &str) -> Result {
    let line = format!("PUT {path}");
    let answer = ask(address, &line, &["Content-Length: 0".to_owned()], &[])?;
    if matches!(answer.status, 200 | 201) {
        Ok(())
    } else {
        Err(format!("{line} is answered {answer:?}").into())
    }
}
