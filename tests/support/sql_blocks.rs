//! SQL in documents.

/// The blocks of SQL in a page, each with the line of text above it.
pub fn sql_blocks(page: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut said = "";
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if line == "```sql" {
            let query: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            found.push((said.to_owned(), query.join("\n")));
        } else if !line.is_empty() {
            said = line;
        }
    }
    found
}

/// The part of a page from a heading to the next one of its level.
#[track_caller]
pub fn section<'a>(page: &'a str, heading: &str) -> &'a str {
    let level = heading.split_once(' ').expect("a heading").0;
    let (_, rest) = page.split_once(&format!("\n{heading}\n")).expect(heading);
    rest.split(&format!("\n{level} ")).next().unwrap_or(rest)
}
