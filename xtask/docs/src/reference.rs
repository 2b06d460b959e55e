//! Pages that the program writes: all settings and all metrics.

use std::fs;
use std::path::Path;

use xtask::Result;
use xtask::command::Run;

/// Each page, by its name in `ifmatch reference`.
const PAGES: [&str; 2] = ["settings", "metrics"];

/// Writes all pages, by a gateway that cargo builds.
pub(crate) fn write(repository: &Path) -> Result {
    for name in PAGES {
        let gateway = format!(
            "run --quiet --locked --package ifmatch-gateway --bin ifmatch -- reference {name}"
        );
        fs::write(
            repository.join(file(name)),
            Run::cargo(&gateway, repository).output()?,
        )?;
    }
    Ok(())
}

fn file(name: &str) -> String {
    format!("docs/reference/{name}.md")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(name: &str) -> Result<String> {
        let finished = support::run(["reference", name]);
        if finished.status.success() {
            Ok(finished.stdout)
        } else {
            Err(finished.stderr.into())
        }
    }

    #[test]
    fn the_reference_is_current() {
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for name in PAGES {
            let committed = fs::read_to_string(repository.join(file(name))).unwrap();
            assert_eq!(
                committed,
                page(name).unwrap(),
                "run `cargo xtask docs --reference`"
            );
        }
    }
}
