//! Plots of ratios: each with its median and spread, on a logarithmic scale.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use xtask::Result;

/// Width of a plot, in pixels as all sizes here.
const WIDTH: f64 = 700.0;
/// Minimum width of the labels.
const LEFT: f64 = 270.0;
/// Width of a letter, about.
const LETTER: f64 = 6.2;
/// Width of the numbers.
const RIGHT: f64 = 90.0;
const ROW: f64 = 22.0;
const TOP: f64 = 46.0;

const STYLE: &str = "
    text { font: 12px system-ui, -apple-system, 'Segoe UI', sans-serif; fill: #1f2328 }
    .panel { fill: #f6f8fa; stroke: #d0d7de }
    .title { font-weight: 600 }
    .label { text-anchor: end }
    .tick { text-anchor: middle; fill: #57606a }
    .grid { stroke: #d8dee4 }
    .one { stroke: #57606a }
    .spread { stroke: #0969da; stroke-width: 3; stroke-linecap: round; opacity: 0.45 }
    .median { fill: #0969da }
    @media (prefers-color-scheme: dark) {
      text { fill: #e6edf3 }
      .panel { fill: #161b22; stroke: #30363d }
      .tick { fill: #9da7b3 }
      .grid { stroke: #2d333b }
      .one { stroke: #9da7b3 }
      .spread { stroke: #58a6ff }
      .median { fill: #58a6ff }
    }
  ";

/// A ratio with its spread.
#[derive(Debug, PartialEq)]
struct Ratio {
    label: String,
    least: f64,
    median: f64,
    most: f64,
}

/// Ratios with a common heading.
#[derive(Debug, PartialEq)]
struct Group {
    title: String,
    ratios: Vec<Ratio>,
}

/// Returns the plot of a Markdown table with ratios such as `1.02 (0.82–1.18)`, or `None` for another table. Each column is a
/// group. A dash stands for a ratio that is left out.
pub(crate) fn of_table(table: &str) -> Option<String> {
    let (title, groups) = parse(table)?;
    Some(svg(&title, &groups))
}

fn parse(table: &str) -> Option<(String, Vec<Group>)> {
    let mut lines = table.trim().lines().map(cells);
    let head = lines.next()?;
    let rows: Vec<Vec<&str>> = lines.skip(1).collect();
    let group = |(column, title): (usize, &&str)| {
        let ratio = |row: &Vec<&str>| ratio(row.first()?, row.get(column)?);
        let measured = |row: &&Vec<&str>| row.get(column).is_none_or(|cell| *cell != "–");
        let ratios: Vec<Ratio> = rows
            .iter()
            .filter(measured)
            .map(ratio)
            .collect::<Option<_>>()?;
        (!ratios.is_empty()).then(|| Group {
            title: (*title).to_owned(),
            ratios,
        })
    };
    let groups: Vec<Group> = head
        .iter()
        .enumerate()
        .skip(1)
        .map(group)
        .collect::<Option<_>>()?;
    (!groups.is_empty()).then(|| (head[0].to_owned(), groups))
}

fn cells(line: &str) -> Vec<&str> {
    let line = line.trim();
    let inner = line.strip_prefix('|').unwrap_or(line);
    inner
        .strip_suffix('|')
        .unwrap_or(inner)
        .split('|')
        .map(str::trim)
        .collect()
}

fn ratio(label: &str, cell: &str) -> Option<Ratio> {
    let (median, spread) = cell.split_once(" (")?;
    let (least, most) = spread.strip_suffix(')')?.split_once('–')?;
    let [least, median, most] =
        [least, median, most].map(|number| number.parse().ok().filter(|number| *number > 0.0));
    Some(Ratio {
        label: label.to_owned(),
        least: least?,
        median: median?,
        most: most?,
    })
}

fn svg(title: &str, groups: &[Group]) -> String {
    let all = || groups.iter().flat_map(|group| &group.ratios);
    let from = all()
        .map(|ratio| ratio.least.log2().floor())
        .fold(-1.0, f64::min);
    let to = all()
        .map(|ratio| ratio.most.log2().ceil())
        .fold(1.0, f64::max);
    let left = all().map(|ratio| width(&ratio.label)).fold(LEFT, f64::max);
    let x = |value: f64| left + (value.log2() - from) / (to - from) * (WIDTH - left - RIGHT);
    let mut body = String::new();
    let mut y = TOP;
    for group in groups {
        if !group.title.is_empty() {
            let _ = writeln!(
                body,
                r#"  <text class="title" x="16" y="{:.0}">{}</text>"#,
                y + 16.0,
                escaped(&group.title)
            );
            y += ROW;
        }
        for ratio in &group.ratios {
            mark(&mut body, ratio, left, y + 11.0, x);
            y += ROW;
        }
        y += 6.0;
    }
    let mut grid = String::new();
    let mut power = from;
    while power <= to {
        let (at, class) = (x(power.exp2()), if power == 0.0 { "one" } else { "grid" });
        let _ = writeln!(
            grid,
            r#"  <line class="{class}" x1="{at:.1}" y1="{TOP}" x2="{at:.1}" y2="{y:.0}"/>"#
        );
        let _ = writeln!(
            grid,
            r#"  <text class="tick" x="{at:.1}" y="{:.0}">{}</text>"#,
            y + 16.0,
            power.exp2()
        );
        power += 1.0;
    }
    let height = y + 28.0;
    let title = escaped(title);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         role=\"img\" aria-labelledby=\"title\">\n  <title id=\"title\">{title}: medians with their spread</title>\n  \
         <style>{STYLE}</style>\n  <rect class=\"panel\" x=\"0.5\" y=\"0.5\" width=\"{}\" height=\"{}\" rx=\"8\"/>\n  \
         <text class=\"title\" x=\"16\" y=\"28\">{title}</text>\n{grid}{body}</svg>\n",
        WIDTH - 1.0,
        height - 1.0
    )
}

/// Adds a ratio: its label, spread, median and number.
fn mark(body: &mut String, ratio: &Ratio, left: f64, y: f64, x: impl Fn(f64) -> f64) {
    let [least, median, most] = [ratio.least, ratio.median, ratio.most].map(x);
    let (below, end) = (y + 4.0, WIDTH - 16.0);
    let (label, number) = (escaped(&ratio.label), ratio.median);
    let _ = write!(
        body,
        "  <text class=\"label\" x=\"{:.0}\" y=\"{below:.0}\">{label}</text>\n  \
         <line class=\"spread\" x1=\"{least:.1}\" y1=\"{y:.0}\" x2=\"{most:.1}\" y2=\"{y:.0}\"/>\n  \
         <circle class=\"median\" cx=\"{median:.1}\" cy=\"{y:.0}\" r=\"5\"/>\n  \
         <text class=\"label\" x=\"{end:.0}\" y=\"{below:.0}\">{number:.2}</text>\n",
        left - 12.0
    );
}

/// Returns the width of a label with its margins.
fn width(label: &str) -> f64 {
    f64::from(u32::try_from(label.chars().count()).unwrap_or(u32::MAX)) * LETTER + 28.0
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

/// The page with the tables.
const PAGE: &str = "benches/benchmarks.md";
/// The plots, in the order of their tables.
const NAMES: [&str; 7] = [
    "servers",
    "postgres",
    "redis",
    "etcd",
    "worker",
    "caches",
    "caches-cpu",
];
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
    let plots: Vec<String> = page
        .split("\n\n")
        .filter(|part| part.starts_with(HEAD))
        .filter_map(of_table)
        .collect();
    if plots.len() != NAMES.len() {
        return Err(format!(
            "{PAGE} has {} tables of ratios: name each in plot.rs",
            plots.len()
        )
        .into());
    }
    Ok(NAMES
        .iter()
        .map(|name| format!("benches/images/ratios-{name}.svg"))
        .zip(plots)
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
    | ratio of requests/s | ours / a | ours / b |
    |---|---|---|
    | 304 | 1.00 (0.50–2.00) | 4.00 (2.00–8.00) |
    ";

    #[test]
    fn each_column_is_a_group() {
        let (title, groups) = parse(TABLE).unwrap();
        assert_eq!(title, "ratio of requests/s");
        let ratio = |least, median, most| Ratio {
            label: "304".to_owned(),
            least,
            median,
            most,
        };
        assert_eq!(
            groups[0],
            Group {
                title: "ours / a".to_owned(),
                ratios: vec![ratio(0.5, 1.0, 2.0)]
            }
        );
        assert_eq!(groups[1].ratios, [ratio(2.0, 4.0, 8.0)]);
    }

    #[test]
    fn the_scale_is_logarithmic() {
        let svg = of_table(TABLE).unwrap();
        // From 1/2 to 8: the median 1 is at a quarter of the width, and 4 at three quarters.
        let at = |share: f64| format!("cx=\"{:.1}\"", LEFT + share * (WIDTH - LEFT - RIGHT));
        assert!(svg.contains(&at(0.25)) && svg.contains(&at(0.75)), "{svg}");
    }

    #[test]
    fn long_labels_narrow_the_scale() {
        let long = "x".repeat(60);
        let svg = of_table(&TABLE.replace("304", &long)).unwrap();
        let left = width(&long);
        assert!(
            left > LEFT && svg.contains(&format!("x=\"{:.0}\"", left - 12.0)),
            "{svg}"
        );
        let at = |share: f64| format!("cx=\"{:.1}\"", left + share * (WIDTH - left - RIGHT));
        assert!(svg.contains(&at(0.25)) && svg.contains(&at(0.75)), "{svg}");
    }

    #[test]
    fn a_table_without_spreads_has_no_plot() {
        assert_eq!(of_table("| a | b |\n|---|---|\n| 1 | 2 |"), None);
        assert_eq!(
            of_table("| a | b |\n|---|---|\n| 1 | 0.00 (0.00–1.00) |"),
            None
        );
        assert_eq!(of_table(""), None);
    }

    #[test]
    fn the_plots_are_current() {
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for (file, svg) in plots(&repository).unwrap() {
            let committed = fs::read_to_string(repository.join(&file)).unwrap();
            assert_eq!(committed, svg, "{file}: run `cargo xtask docs --plots`");
        }
    }
}
