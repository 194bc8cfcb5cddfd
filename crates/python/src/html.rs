//! Tables for notebooks.

/// One cell of a table.
pub(crate) enum Cell {
    /// Text, as its writer wrote it.
    Text(String),
    /// A figure, set to the right.
    Figure(String),
}

/// A table with a row of headings.
pub(crate) fn table(headings: &[&str], rows: &[Vec<Cell>]) -> String {
    let mut html = String::from("<table><thead><tr>");
    for heading in headings {
        html.push_str(&format!("<th>{}</th>", escaped(heading)));
    }
    html.push_str("</tr></thead><tbody>");
    for row in rows {
        html.push_str("<tr>");
        row.iter().for_each(|cell| html.push_str(&cell.html()));
        html.push_str("</tr>");
    }
    html.push_str("</tbody></table>");
    html
}

/// A table of facts, each with its name before it.
pub(crate) fn facts(facts: Vec<(&str, Cell)>) -> String {
    let mut html = String::from("<table><tbody>");
    for (name, cell) in facts {
        html.push_str(&format!(
            "<tr><th>{}</th>{}</tr>",
            escaped(name),
            cell.html()
        ));
    }
    html.push_str("</tbody></table>");
    html
}

pub(crate) fn text(text: impl ToString) -> Cell {
    Cell::Text(text.to_string())
}

pub(crate) fn figure(figure: impl ToString) -> Cell {
    Cell::Figure(figure.to_string())
}

/// A number of bytes in the unit that reads best.
pub(crate) fn bytes(bytes: u64) -> Cell {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let unit = bytes.checked_ilog2().map_or(0, |log| log as usize / 10);
    let unit = unit.min(UNITS.len() - 1);
    if unit == 0 {
        return figure(format!("{bytes} B"));
    }
    let scaled = bytes as f64 / (1_u64 << (10 * unit)) as f64;
    figure(format!("{scaled:.1} {}", UNITS[unit]))
}

impl Cell {
    fn html(&self) -> String {
        match self {
            Self::Text(text) => format!("<td style=\"text-align:left\">{}</td>", escaped(text)),
            Self::Figure(figure) => {
                format!("<td style=\"text-align:right\">{}</td>", escaped(figure))
            }
        }
    }
}

fn escaped(text: &str) -> String {
    let mut html = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            letter => html.push(letter),
        }
    }
    html
}
