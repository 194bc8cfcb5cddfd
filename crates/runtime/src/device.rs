//! A device: one processor that streams run on.

use std::fmt;
use std::str::FromStr;

use crate::cpu;
use crate::error::{Error, quoted};

/// The devices of this machine, in order: the CPU first.
///
/// Listing starts no driver and no thread, and takes no lock that a later `fork` could inherit.
///
/// # Examples
///
/// ```
/// for device in clika_runtime::devices() {
///     println!("{device}: {}, {} compute units", device.name(), device.compute_units());
/// }
/// ```
pub fn devices() -> Vec<Device> {
    vec![Device::cpu()]
}

/// One device of this machine, told apart by its kind and its index among its kind.
///
/// A `Device` is a small value: copy it, compare it, use it as a key. It is printed, and parsed, as
/// `"cpu:0"`; every one that exists stands for a device that is there.
///
/// What it says about itself is asked of the system anew by each call.
///
/// # Examples
///
/// ```
/// use clika_runtime::Device;
///
/// let device: Device = "CPU".parse()?;
/// assert_eq!(device, Device::cpu());
/// assert_eq!(device.to_string(), "cpu:0");
/// # Ok::<(), clika_runtime::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Device {
    kind: DeviceKind,
    index: u32,
}

// Only CPUs can be constructed so far, hence no fact below depends on the kind.
impl Device {
    /// The CPU, with all the cores that this process may use.
    pub const fn cpu() -> Self {
        Self {
            kind: DeviceKind::Cpu,
            index: 0,
        }
    }

    /// What kind of device it is.
    pub const fn kind(&self) -> DeviceKind {
        self.kind
    }

    /// Its position among the devices of its kind, from zero.
    pub const fn index(&self) -> u32 {
        self.index
    }

    /// What its maker calls it, such as `"AMD EPYC 7B13"`.
    pub fn name(&self) -> String {
        cpu::name()
    }

    /// Its memory in bytes. For a CPU: that of the machine or, where it is less, what the control
    /// groups (containers) that this process is in may use. Zero if the system does not tell.
    pub fn total_memory(&self) -> u64 {
        cpu::total_memory()
    }

    /// How many parts of it compute side by side. For a CPU: the cores that this process may use,
    /// as its affinity and the processor quotas of its control groups leave them; at least one.
    pub fn compute_units(&self) -> usize {
        cpu::cores()
    }

    /// The version of its driver. None for a CPU, which needs no driver.
    pub fn driver_version(&self) -> Option<String> {
        None
    }

    /// The number formats that it has arithmetic for, by the names that NumPy gives them:
    /// `"float32"`.
    pub fn formats(&self) -> &'static [&'static str] {
        cpu::formats()
    }

    /// The extensions of its instruction set that programs may want to know of, such as `"avx2"`,
    /// by the names that the Rust compiler gives them. Empty where none is known.
    pub fn instruction_sets(&self) -> Vec<&'static str> {
        cpu::instruction_sets()
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}:{}", self.kind, self.index))
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({self})")
    }
}

/// Takes a kind in any case, with or without an index: `"cpu"`, `"cpu:0"`, `"Vulkan:1"`,
/// `"CUDA:0"`. Without one, the first of that kind is meant. Nothing else is taken, spaces around
/// it neither.
///
/// # Errors
///
/// Another text, or a device that is not there, is an [invalid
/// argument](Error::is_invalid_argument); its message lists the devices that are.
impl FromStr for Device {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let (word, index) = text.split_once(':').unwrap_or((text, "0"));
        let kind = DeviceKind::from_word(word).ok_or_else(|| unknown(text))?;
        if !is_index(index) {
            return Err(bad_index(text, kind));
        }
        // Compared as text, so that no index is too large to ask for.
        devices()
            .into_iter()
            .find(|device| device.kind == kind && device.index.to_string() == index)
            .ok_or_else(|| absent(text, kind))
    }
}

/// The kinds of devices. Knowing one does not mean that this machine has it: see [`devices`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum DeviceKind {
    /// The processor that the program itself runs on.
    Cpu,
    /// A GPU that is driven through Vulkan.
    Vulkan,
    /// A GPU that is driven through CUDA.
    Cuda,
}

impl DeviceKind {
    const ALL: [Self; 3] = [Self::Cpu, Self::Vulkan, Self::Cuda];

    /// The word that stands for it in texts: `"cpu"`, `"vulkan"`, `"cuda"`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Vulkan => "vulkan",
            Self::Cuda => "cuda",
        }
    }

    fn from_word(word: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.as_str().eq_ignore_ascii_case(word))
    }
}

impl fmt::Display for DeviceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// One spelling per device: digits, with no sign and no leading zero.
fn is_index(text: &str) -> bool {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits && (text == "0" || !text.starts_with('0'))
}

fn unknown(text: &str) -> Error {
    let hint = likely(text).map_or_else(String::new, |meant| format!("Did you mean \"{meant}\"? "));
    Error::invalid_argument(format!(
        "unknown device {}. {hint}A device is written \"cpu\", \"vulkan\" or \"cuda\", with an \
         index if it is not the first (\"cuda:1\"). {}",
        quoted(text),
        what_is_there()
    ))
}

fn bad_index(text: &str, kind: DeviceKind) -> Error {
    Error::invalid_argument(format!(
        "the device {} has a bad index: write a whole number after the colon, as in \"{kind}:0\". \
         {}",
        quoted(text),
        what_is_there()
    ))
}

fn absent(text: &str, kind: DeviceKind) -> Error {
    let reason = match kind {
        DeviceKind::Cpu => "all cores together are one device",
        DeviceKind::Vulkan | DeviceKind::Cuda => "this version of the runtime drives CPUs only",
    };
    Error::invalid_argument(format!(
        "there is no device {}: {reason}. {}",
        quoted(text),
        what_is_there()
    ))
}

fn what_is_there() -> String {
    let texts: Vec<String> = devices().iter().map(Device::to_string).collect();
    format!("This machine has: {}.", texts.join(", "))
}

/// What a text of the wrong form most likely means: a kind that its letters are close to, with the
/// index it ends in.
fn likely(text: &str) -> Option<String> {
    let text = text.trim();
    let word = text
        .split(|c: char| !c.is_ascii_alphabetic())
        .next()?
        .to_ascii_lowercase();
    let kind = DeviceKind::ALL
        .into_iter()
        .find(|kind| is_close(&word, kind.as_str()))?;

    let before_digits = text.trim_end_matches(|c: char| c.is_ascii_digit());
    match &text[before_digits.len()..] {
        index if is_index(index) => Some(format!("{kind}:{index}")),
        _ => Some(kind.to_string()),
    }
}

/// Whether two words differ by at most one slip of the fingers: a letter too many, too few, wrong,
/// or two swapped. Not in the first letter, since "gpu" and "tpu" are no misspelt "cpu".
fn is_close(word: &str, meant: &str) -> bool {
    let (word, meant) = (word.as_bytes(), meant.as_bytes());
    let start = common(word.iter(), meant.iter());
    let (word, meant) = (&word[start..], &meant[start..]);
    let end = common(word.iter().rev(), meant.iter().rev());
    let differing = (&word[..word.len() - end], &meant[..meant.len() - end]);
    let one_slip = match differing {
        ([a, b], [c, d]) => a == d && b == c,
        (a, b) => a.len() <= 1 && b.len() <= 1,
    };
    start > 0 && one_slip
}

/// How many items two sequences have in common before they differ.
fn common<T: PartialEq>(a: impl Iterator<Item = T>, b: impl Iterator<Item = T>) -> usize {
    a.zip(b).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeSet, HashSet};

    fn refusal(text: &str) -> String {
        match text.parse::<Device>() {
            Err(error) if error.is_invalid_argument() => error.to_string(),
            other => panic!("an invalid argument was expected for {text:?}, not {other:?}"),
        }
    }

    #[test]
    fn it_is_a_plain_value() {
        fn plain<T: Copy + Send + Sync + Ord + std::hash::Hash + fmt::Debug + 'static>() {}
        plain::<Device>();
        let pair = [Device::cpu(), Device::cpu()];
        assert_eq!(HashSet::from(pair).len(), 1);
        assert_eq!(BTreeSet::from(pair).len(), 1);
        assert_eq!(
            format!("{:?} [{:>6}]", pair[0], pair[1]),
            "Device(cpu:0) [ cpu:0]"
        );
    }

    #[test]
    fn the_cpu_is_parsed_in_any_case() {
        for text in ["cpu", "cpu:0", "CPU", "Cpu:0"] {
            assert_eq!(text.parse::<Device>().ok(), Some(Device::cpu()), "{text}");
        }
    }

    #[test]
    fn every_listed_device_is_printed_as_it_is_parsed() {
        let listed = devices();
        assert!(listed.contains(&Device::cpu()));
        assert!(listed.is_sorted());
        for device in listed {
            assert_eq!(device.to_string().parse::<Device>().ok(), Some(device));
        }
    }

    #[test]
    fn known_devices_that_are_not_there_list_what_is() {
        for text in [
            "vulkan",
            "vulkan:1",
            "CUDA:0",
            "cpu:1",
            "cpu:99999999999999999999",
        ] {
            let message = refusal(text);
            assert!(
                message.starts_with(&format!("there is no device {}", quoted(text))),
                "{message}"
            );
            assert!(message.ends_with("This machine has: cpu:0."), "{message}");
        }
    }

    #[test]
    fn a_bad_index_is_told_apart() {
        for text in [
            "cpu:", "cpu:x", "cpu:-1", "cpu:+0", "cpu:00", "cpu: 0", "cpu:0 ", "cpu:0:0", "cpu:٣",
        ] {
            let message = refusal(text);
            assert!(
                message.contains("bad index") && message.contains("\"cpu:0\""),
                "{message}"
            );
            assert!(message.ends_with("This machine has: cpu:0."), "{message}");
        }
    }

    #[test]
    fn a_likely_meaning_is_offered_only_when_close() {
        let cases = [
            ("cpuu", Some("cpu")),
            ("cp", Some("cpu")),
            ("cup", Some("cpu")),
            ("CPU0", Some("cpu:0")),
            (" cpu", Some("cpu")),
            ("cpu\n", Some("cpu")),
            ("cpu 0", Some("cpu:0")),
            ("vulcan:1", Some("vulkan:1")),
            ("vulkn", Some("vulkan")),
            ("cdua", Some("cuda")),
            ("cuuda", Some("cuda")),
            ("coda:007", Some("cuda")),
            ("gpu", None),
            ("tpu:0", None),
            ("metal", None),
            ("c", None),
            ("", None),
            (":0", None),
            ("0", None),
            ("ＣＰＵ", None),
            ("процессор", None),
        ];
        for (text, meant) in cases {
            let message = refusal(text);
            let offered = message
                .split_once("Did you mean \"")
                .and_then(|(_, rest)| rest.split_once('"'));
            assert_eq!(offered.map(|(offered, _)| offered), meant, "{message}");
            assert!(message.ends_with("This machine has: cpu:0."), "{message}");
        }
    }

    #[test]
    fn a_long_text_is_cut_in_the_message() {
        assert!(refusal(&"x".repeat(1_000_000)).len() < 300);
    }

    #[test]
    fn the_facts_of_the_cpu_hold_together() {
        let cpu = Device::cpu();
        assert_eq!((cpu.kind(), cpu.index()), (DeviceKind::Cpu, 0));
        assert!(!cpu.name().trim().is_empty());
        assert!(cpu.compute_units() >= 1);
        assert_eq!(cpu.driver_version(), None);
        assert!(cpu.formats().contains(&"float32"));
        if cfg!(target_os = "linux") {
            assert!(cpu.total_memory() > 0);
        }
    }
}
