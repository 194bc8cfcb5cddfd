//! The facts of the CPU, asked of the system anew each time: kept nowhere, they need no lock that a
//! `fork` could leave taken, and cannot grow stale.

use std::path::{Path, PathBuf};

/// How the files of the system are read: `None` if there is no such file. Tests pass a table of
/// their own.
type Read<'a> = &'a dyn Fn(&Path) -> Option<String>;

fn read_system(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

/// The name that the maker gave it.
pub(crate) fn name() -> String {
    name_from(&read_system)
}

/// Bytes of memory: of the machine or, where less, of the tightest control group around this
/// process. Zero if unknown.
pub(crate) fn total_memory() -> u64 {
    memory_from(&read_system)
}

/// The cores that this process may use, by its affinity and its control groups' processor quotas;
/// at least one.
pub(crate) fn cores() -> usize {
    // On Linux the standard library considers both, quotas rounded down, for either version of
    // control groups.
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The number formats that the processor has arithmetic for.
pub(crate) fn formats() -> &'static [&'static str] {
    const ALL: &[&str] = &[
        "float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16",
        "uint32", "uint64",
    ];
    if has_float16() { ALL } else { &ALL[1..] }
}

/// Whether `$detect` finds each of the names: the detecting macros take nothing but literals.
#[cfg(any(target_arch = "x86", target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! detected {
    ($detect:ident: $($name:tt)*) => {
        [$(($name, $detect!($name))),*]
            .into_iter()
            .filter_map(|(name, here)| here.then_some(name))
            .collect()
    };
}

/// The extensions of the instruction set that matter for computing, by their names in the Rust
/// compiler.
#[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
pub(crate) fn instruction_sets() -> Vec<&'static str> {
    use std::arch::is_x86_feature_detected;
    detected!(is_x86_feature_detected:
        "sse2" "sse3" "ssse3" "sse4.1" "sse4.2" "popcnt" "bmi1" "bmi2" "f16c" "fma"
        "avx" "avx2" "avxvnni" "avx512f" "avx512bw" "avx512cd" "avx512dq" "avx512vl" "avx512ifma"
        "avx512vbmi" "avx512vbmi2" "avx512bitalg" "avx512vpopcntdq" "avx512vnni" "avx512bf16"
        "avx512fp16")
}

/// The extensions of the instruction set that matter for computing, by their names in the Rust
/// compiler.
#[cfg(target_arch = "aarch64")]
pub(crate) fn instruction_sets() -> Vec<&'static str> {
    use std::arch::is_aarch64_feature_detected;
    detected!(is_aarch64_feature_detected:
        "neon" "fp16" "fhm" "dotprod" "fcma" "lse" "bf16" "i8mm" "sve" "f32mm" "f64mm" "sve2")
}

/// None is known for other architectures.
#[cfg(not(any(target_arch = "x86", target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) fn instruction_sets() -> Vec<&'static str> {
    Vec::new()
}

/// Arithmetic, not merely conversion to and from float32.
fn has_float16() -> bool {
    instruction_sets()
        .iter()
        .any(|&name| name == "avx512fp16" || name == "fp16")
}

fn name_from(read: Read) -> String {
    let cpuinfo = read(Path::new("/proc/cpuinfo")).unwrap_or_default();
    // x86, s390 and most ARM boards; MIPS; POWER and SPARC; RISC-V.
    ["model name", "cpu model", "cpu", "uarch"]
        .iter()
        .find_map(|key| field(&cpuinfo, key))
        .map(str::to_owned)
        .or_else(|| part(&cpuinfo))
        .unwrap_or_else(|| format!("{} CPU", std::env::consts::ARCH))
}

/// What ARM processors tell of themselves where they have no name: numbers to look up.
fn part(cpuinfo: &str) -> Option<String> {
    let implementer = field(cpuinfo, "CPU implementer")?;
    let part = field(cpuinfo, "CPU part")?;
    Some(format!(
        "{} CPU (implementer {implementer}, part {part})",
        std::env::consts::ARCH
    ))
}

/// The first value of `key` in lines of the form `key : value`. Virtual machines leave some of them
/// empty.
fn field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let fields = text.lines().filter_map(|line| line.split_once(':'));
    fields
        .map(|(name, value)| (name.trim(), value.trim()))
        .find(|(name, value)| *name == key && !matches!(*value, "" | "unknown"))
        .map(|(_, value)| value)
}

fn memory_from(read: Read) -> u64 {
    let machine = read(Path::new("/proc/meminfo"))
        .and_then(|text| machine_memory(&text))
        .unwrap_or(0);
    // A group without a limit says "max", or in version 1 a number beyond all memory.
    let limits = limit_files(read)
        .into_iter()
        .filter_map(|file| read(&file)?.trim().parse().ok());
    limits.fold(machine, u64::min)
}

fn machine_memory(meminfo: &str) -> Option<u64> {
    let kibibytes: u64 = field(meminfo, "MemTotal")?
        .strip_suffix("kB")?
        .trim()
        .parse()
        .ok()?;
    kibibytes.checked_mul(1024)
}

/// Where the memory limits of this process may stand: those of its own control groups and of all
/// groups above them, since every one of them binds.
fn limit_files(read: Read) -> Vec<PathBuf> {
    let own = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let mounts = read(Path::new("/proc/self/mountinfo")).unwrap_or_default();
    mounts
        .lines()
        .filter_map(Hierarchy::parse)
        .flat_map(|hierarchy| hierarchy.limit_files(&own))
        .collect()
}

/// A mounted tree of control groups that can limit memory.
struct Hierarchy<'a> {
    version: Version,
    /// The group that the mount point shows; in a container often not the topmost one.
    root: &'a Path,
    mount_point: &'a Path,
}

#[derive(Clone, Copy)]
enum Version {
    One,
    Two,
}

impl<'a> Hierarchy<'a> {
    /// From a line of `mountinfo`: id, parent, device, root, mount point, options..., "-", type,
    /// source, super options.
    fn parse(line: &'a str) -> Option<Self> {
        let (mount, file_system) = line.split_once(" - ")?;
        let mut file_system = file_system.split(' ');
        let version = match (file_system.next()?, file_system.nth(1)?) {
            ("cgroup2", _) => Version::Two,
            ("cgroup", options) if options.split(',').any(|option| option == "memory") => {
                Version::One
            }
            _ => return None,
        };
        let mut mount = mount.split(' ').skip(3).map(Path::new);
        Some(Self {
            version,
            root: mount.next()?,
            mount_point: mount.next()?,
        })
    }

    fn limit_files(&self, own_groups: &str) -> Vec<PathBuf> {
        let group = own_groups
            .lines()
            .find_map(|line| self.group(line))
            .unwrap_or(Path::new(""));
        let levels = group.ancestors().map(|level| self.mount_point.join(level));
        levels
            .map(|level| level.join(self.version.limit_file()))
            .collect()
    }

    /// From a line of the process's groups (id, controllers, path): the path below the mount point,
    /// if the line is about this hierarchy. A group that is not below it cannot be seen from here.
    fn group<'b>(&self, line: &'b str) -> Option<&'b Path> {
        let mut fields = line.splitn(3, ':').skip(1);
        let controllers = fields.next()?;
        let ours = match self.version {
            Version::One => controllers
                .split(',')
                .any(|controller| controller == "memory"),
            Version::Two => controllers.is_empty(),
        };
        let path = Path::new(fields.next()?).strip_prefix(self.root).ok()?;
        let visible = path
            .components()
            .all(|part| matches!(part, std::path::Component::Normal(_)));
        (ours && visible).then_some(path)
    }
}

impl Version {
    fn limit_file(self) -> &'static str {
        match self {
            Self::One => "memory.limit_in_bytes",
            Self::Two => "memory.max",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMINFO: (&str, &str) = (
        "/proc/meminfo",
        "MemTotal:       1000 kB\nMemFree:        10 kB\n",
    );
    const MACHINE: u64 = 1_024_000;

    fn memory(files: &[(&str, &str)]) -> u64 {
        memory_from(&|path| lookup(files, path))
    }

    fn lookup(files: &[(&str, &str)], path: &Path) -> Option<String> {
        let found = files.iter().find(|(name, _)| Path::new(name) == path);
        found.map(|(_, text)| (*text).to_owned())
    }

    fn name_in(cpuinfo: &str) -> String {
        name_from(&|path| lookup(&[("/proc/cpuinfo", cpuinfo)], path))
    }

    #[test]
    fn the_name_is_what_the_system_calls_the_processor() {
        let x86 = "processor\t: 0\nmodel\t\t: 1\nmodel name\t: AMD EPYC 7B13\n\n\
                   processor\t: 1\nmodel name\t: other\n";
        assert_eq!(name_in(x86), "AMD EPYC 7B13");
        assert_eq!(
            name_in("processor\t: 0\ncpu\t\t: POWER9, altivec supported\n"),
            "POWER9, altivec supported"
        );
        assert_eq!(
            name_in("processor\t: 0\nhart\t: 1\nuarch\t: sifive,u74-mc\n"),
            "sifive,u74-mc"
        );
    }

    #[test]
    fn a_processor_without_a_name_still_has_one() {
        let arch = std::env::consts::ARCH;
        let arm = "CPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: 0xd0c\n";
        assert_eq!(
            name_in(arm),
            format!("{arch} CPU (implementer 0x41, part 0xd0c)")
        );
        assert_eq!(
            name_in("model name\t:\nmodel name\t: unknown\n"),
            format!("{arch} CPU")
        );
        assert_eq!(name_from(&|_| None), format!("{arch} CPU"));
    }

    #[test]
    fn memory_is_the_machines_where_no_group_limits_it() {
        assert_eq!(memory(&[MEMINFO]), MACHINE);
        assert_eq!(memory(&[]), 0);
        assert_eq!(
            memory(&[("/proc/meminfo", "MemTotal: 99999999999999999999 kB")]),
            0
        );
        let unlimited = [
            MEMINFO,
            ("/proc/self/cgroup", "0::/app\n"),
            (
                "/proc/self/mountinfo",
                "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
            ),
            ("/sys/fs/cgroup/app/memory.max", "max\n"),
        ];
        assert_eq!(memory(&unlimited), MACHINE);
    }

    #[test]
    fn the_tightest_group_above_the_process_limits_memory() {
        let files = [
            MEMINFO,
            ("/proc/self/cgroup", "0::/slice/app\n"),
            (
                "/proc/self/mountinfo",
                "30 23 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw,nsdelegate\n",
            ),
            ("/sys/fs/cgroup/slice/app/memory.max", "900000\n"),
            ("/sys/fs/cgroup/slice/memory.max", "700000\n"),
            ("/sys/fs/cgroup/memory.max", "max\n"),
            ("/sys/fs/cgroup/other/memory.max", "1\n"),
        ];
        assert_eq!(memory(&files), 700_000);
    }

    #[test]
    fn groups_of_version_1_limit_memory_beside_version_2() {
        let files = [
            MEMINFO,
            (
                "/proc/self/cgroup",
                "4:cpu:/elsewhere\n3:memory,hugetlb:/pod/app\n0::/\n",
            ),
            (
                "/proc/self/mountinfo",
                "27 1 254:0 / / rw - ext4 /dev/vda rw\n\
                 32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                 35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory,hugetlb\n\
                 41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
            ),
            (
                "/sys/fs/cgroup/memory/pod/app/memory.limit_in_bytes",
                "9223372036854771712\n",
            ),
            (
                "/sys/fs/cgroup/memory/pod/memory.limit_in_bytes",
                "500000\n",
            ),
            ("/sys/fs/cgroup/cpu/elsewhere/memory.limit_in_bytes", "1\n"),
        ];
        assert_eq!(memory(&files), 500_000);
    }

    #[test]
    fn a_container_sees_its_own_group_at_the_mount_point() {
        let limit = ("/sys/fs/cgroup/memory.max", "600000\n");
        for (group, root) in [
            ("/docker/abc", "/docker/abc"),
            ("/../elsewhere", "/"),
            ("/outside", "/docker/abc"),
        ] {
            let groups = format!("0::{group}\n");
            let mounts = format!("30 23 0:26 {root} /sys/fs/cgroup ro - cgroup2 cgroup rw\n");
            let files = [
                MEMINFO,
                ("/proc/self/cgroup", &groups),
                ("/proc/self/mountinfo", &mounts),
                limit,
            ];
            assert_eq!(memory(&files), 600_000, "group {group} under {root}");
        }
    }

    #[test]
    fn garbage_in_system_files_is_passed_over() {
        let files = [
            MEMINFO,
            ("/proc/self/cgroup", "\n0\n0:\n::::\n0::relative\n"),
            (
                "/proc/self/mountinfo",
                "\n - \n1 2 - cgroup2\n - cgroup2 x y\n1 2 3 / /m - cgroup2 c rw\n",
            ),
            ("/m/memory.max", "many\n"),
        ];
        assert_eq!(memory(&files), MACHINE);
    }

    #[test]
    fn the_basic_instruction_sets_are_found() {
        let sets = instruction_sets();
        if cfg!(target_arch = "x86_64") {
            assert!(sets.contains(&"sse2"), "{sets:?}");
        }
        if cfg!(target_arch = "aarch64") {
            assert!(sets.contains(&"neon"), "{sets:?}");
        }
    }

    #[test]
    fn float16_is_listed_where_the_processor_computes_in_it() {
        assert_eq!(formats().contains(&"float16"), has_float16());
        assert!(formats().contains(&"int8") && formats().contains(&"float64"));
    }
}
