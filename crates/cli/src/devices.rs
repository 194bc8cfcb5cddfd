//! `clikart devices`: what this machine has.

use clika_runtime::Device;
use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ContentArrangement, Table};
use serde::Serialize;

use crate::arguments::Devices;
use crate::failure::Failure;
use crate::output;

/// What is told about one device; the fields are the keys of the JSON form.
#[derive(Serialize)]
struct Facts {
    device: String,
    kind: &'static str,
    index: u32,
    name: String,
    total_memory: u64,
    compute_units: usize,
    driver_version: Option<String>,
    formats: &'static [&'static str],
    instruction_sets: Vec<&'static str>,
}

impl Facts {
    fn of(device: &Device) -> Self {
        Self {
            device: device.to_string(),
            kind: device.kind().as_str(),
            index: device.index(),
            name: device.name(),
            total_memory: device.total_memory(),
            compute_units: device.compute_units(),
            driver_version: device.driver_version(),
            formats: device.formats(),
            instruction_sets: device.instruction_sets(),
        }
    }
}

pub(crate) fn run(wishes: &Devices) -> Result<(), Failure> {
    let devices: Vec<Facts> = clika_runtime::devices().iter().map(Facts::of).collect();
    if wishes.json {
        let text = serde_json::to_string_pretty(&devices)
            .map_err(|error| Failure::new(format!("the facts cannot be written: {error}")))?;
        output::print(&format!("{text}\n"))
    } else {
        output::print(&format!("{}\n", table(&devices).trim_fmt()))
    }
}

fn table(devices: &[Facts]) -> Table {
    let mut table = Table::new();
    table
        .load_style(NOTHING)
        .set_width(output::width())
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header([
            "device",
            "name",
            "memory",
            "units",
            "driver",
            "formats",
            "instruction sets",
        ]);
    for device in devices {
        table.add_row([
            device.device.clone(),
            device.name.clone(),
            memory(device.total_memory),
            device.compute_units.to_string(),
            device.driver_version.clone().unwrap_or("none".to_owned()),
            device.formats.join(" "),
            device.instruction_sets.join(" "),
        ]);
    }
    for number in [2, 3] {
        if let Some(column) = table.column_mut(number) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// Bytes as people read them; the system may not tell.
fn memory(bytes: u64) -> String {
    const GIB: f64 = (1_u64 << 30) as f64;
    match bytes {
        0 => "unknown".to_owned(),
        _ => format!("{:.1} GiB", bytes as f64 / GIB),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_told_in_gib() {
        assert_eq!(memory(0), "unknown");
        assert_eq!(memory(25 << 30), "25.0 GiB");
        assert_eq!(memory(3 << 29), "1.5 GiB");
    }
}
