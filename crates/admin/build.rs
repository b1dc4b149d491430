//! Lists the files of the dashboard.

use std::path::{Path, PathBuf};
use std::{env, error::Error, fmt::Write as _, fs, io};

const FOLDER: &str = "src/dashboard";

/// Writes an expression of all files of the dashboard but the document.
fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed={FOLDER}");
    let mut list = "&[\n".to_owned();
    for path in files_below(Path::new(FOLDER))? {
        let name = path.strip_prefix(FOLDER)?.display().to_string();
        if name != "index.html" && !name.ends_with(".rs") {
            let text = format!("include_str!(concat!(env!(\"CARGO_MANIFEST_DIR\"), \"/{FOLDER}/{name}\"))");
            writeln!(list, "Asset {{ name: {name:?}, text: {text} }},")?;
        }
    }
    Ok(fs::write(PathBuf::from(env::var("OUT_DIR")?).join("dashboard.rs"), list + "]")?)
}

fn files_below(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            files.extend(files_below(&path)?);
        } else {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
