//! Settings of regions that enforce limits together.

use std::path::PathBuf;

use clap::Args;

use super::error::Problem;

/// Own region, and the table of all regions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionSettings {
    /// Name of the own region.
    pub name: String,
    /// File of the region table.
    pub table: PathBuf,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Regions")]
pub(super) struct RegionFlags {
    /// Name of this instance's region in the table of --regions.
    #[arg(long, value_name = "NAME")]
    region: Option<String>,
    /// YAML file with the regions that enforce limits of `scope: global` together, and their weights. Read again when it
    /// changes; an invalid table, or one whose generation is not higher, does not replace the active one.
    #[arg(long, value_name = "FILE")]
    regions: Option<PathBuf>,
}

impl RegionFlags {
    pub(super) fn resolve(self) -> Result<Option<RegionSettings>, Problem> {
        match (self.region, self.regions) {
            (Some(name), Some(table)) => Ok(Some(RegionSettings { name, table })),
            (Some(_), None) => Err(Problem::new("--region", "requires --regions")),
            (None, Some(_)) => Err(Problem::new("--regions", "requires --region")),
            (None, None) => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_and_its_table_require_each_other() {
        let resolve = |name: Option<&str>, file: Option<&str>| {
            let flags = RegionFlags { region: name.map(str::to_owned), regions: file.map(PathBuf::from) };
            flags.resolve()
        };
        assert_eq!(resolve(None, None), Ok(None));
        assert!(resolve(Some("us"), Some("regions.yaml")).is_ok_and(|settings| settings.is_some()));
        assert!(resolve(Some("us"), None).unwrap_err().to_string().starts_with("--region: requires"));
        assert!(resolve(None, Some("f")).unwrap_err().to_string().starts_with("--regions: requires"));
    }
}
