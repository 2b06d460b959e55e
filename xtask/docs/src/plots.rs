//! Plots of the ratios that docs/benchmarks.md records.

use std::fs;
use std::path::Path;

use crate::plot;
use xtask::Result;

const PAGE: &str = "docs/benchmarks.md";
/// The plots, in the order of their tables.
const NAMES: [&str; 7] = ["servers", "postgres", "redis", "etcd", "worker", "caches", "caches-cpu"];
/// Beginning of a table with ratios.
const HEAD: &str = "| ratio of ";

/// Writes all plots.
pub(crate) fn write(repository: &Path) -> Result {
    for (file, svg) in plots(repository)? {
        fs::write(repository.join(file), svg)?;
    }
    Ok(())
}

/// Returns each plot with its file.
fn plots(repository: &Path) -> Result<Vec<(String, String)>> {
    let page = fs::read_to_string(repository.join(PAGE))?;
    let plots: Vec<String> =
        page.split("\n\n").filter(|part| part.starts_with(HEAD)).filter_map(plot::of_table).collect();
    if plots.len() != NAMES.len() {
        return Err(format!("{PAGE} has {} tables of ratios: name each in plots.rs", plots.len()).into());
    }
    Ok(NAMES.iter().map(|name| format!("docs/images/ratios-{name}.svg")).zip(plots).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plots_are_current() {
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for (file, svg) in plots(&repository).unwrap() {
            let committed = fs::read_to_string(repository.join(&file)).unwrap();
            assert_eq!(committed, svg, "{file}: run `cargo xtask docs --plots`");
        }
    }
}
