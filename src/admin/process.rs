//! Figures of the process, as Prometheus' own libraries name them. Linux only.

use std::fs;

/// Ticks of a second in `/proc`: USER_HZ, 100 on every architecture that acetate is built for.
const TICKS: f64 = 100.0;

/// The resources of this process.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ProcessFigures {
    /// Processor time, in seconds.
    pub cpu_seconds: Option<f64>,
    /// Start of the process, in seconds since 1970.
    pub start_seconds: Option<f64>,
    /// Resident memory, in bytes.
    pub resident_bytes: Option<u64>,
    /// Address space, in bytes.
    pub virtual_bytes: Option<u64>,
    /// Threads.
    pub threads: Option<u64>,
    /// Open file descriptors.
    pub open_fds: Option<u64>,
    /// Their limit.
    pub max_fds: Option<u64>,
}

impl ProcessFigures {
    /// The current figures; empty where there is no `/proc`.
    pub fn now() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let fds = fs::read_dir("/proc/self/fd").ok();
        Self {
            // Without the descriptor of this listing.
            open_fds: fds.map(|fds| (fds.count() as u64).saturating_sub(1)),
            ..Self::parse(
                &read("/proc/self/stat"),
                &read("/proc/self/status"),
                &read("/proc/self/limits"),
                &read("/proc/stat"),
            )
        }
    }

    /// Reads proc(5).
    fn parse(stat: &str, status: &str, limits: &str, system: &str) -> Self {
        // The program's name may hold spaces and parentheses.
        let fields: Vec<&str> = stat
            .rsplit_once(')')
            .map(|(_, rest)| rest.split_whitespace().collect())
            .unwrap_or_default();
        // Numbered as in proc(5), where the state is the third field.
        let ticks = |field: usize| fields.get(field - 3)?.parse::<f64>().ok();
        let boot = value(system, "btime").and_then(|text| text.parse::<f64>().ok());
        let start = ticks(22).zip(boot).map(|(ticks, boot)| boot + ticks / TICKS);
        let cpu = ticks(14).zip(ticks(15)).map(|(user, system)| (user + system) / TICKS);
        let number = |key| value(status, key)?.parse::<u64>().ok();
        let max_fds = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
        Self {
            cpu_seconds: cpu,
            start_seconds: start,
            resident_bytes: number("VmRSS:").map(|kib| kib << 10),
            virtual_bytes: number("VmSize:").map(|kib| kib << 10),
            threads: number("Threads:"),
            open_fds: None,
            max_fds: max_fds.and_then(|line| line.split_whitespace().next()?.parse().ok()),
        }
    }
}

/// The first word behind `key` at the beginning of a line.
fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(key))?.split_whitespace().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_proc_are_understood() {
        let stat = "7 (a b) c) S 1 7 7 0 -1 4194304 1 0 0 0 150 50 0 0 20 0 3 0 2000 4096 1 0";
        let status = "Name:\ta\nVmSize:\t    2048 kB\nVmRSS:\t     1024 kB\nThreads:\t3\n";
        let limits = "Limit  Soft Limit  Hard Limit  Units\nMax open files  1024  4096  files\n";
        let found = ProcessFigures::parse(stat, status, limits, "cpu 1 2\nbtime 1000\n");
        let expected = ProcessFigures {
            cpu_seconds: Some(2.0),
            start_seconds: Some(1020.0),
            resident_bytes: Some(1 << 20),
            virtual_bytes: Some(2 << 20),
            threads: Some(3),
            open_fds: None,
            max_fds: Some(1024),
        };
        assert_eq!(found, expected);
        assert_eq!(ProcessFigures::parse("", "", "", ""), ProcessFigures::default());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_has_all_figures() {
        let now = ProcessFigures::now();
        assert!(now.open_fds > Some(2) && now.open_fds < now.max_fds, "{now:?}");
        assert!(now.threads >= Some(1) && now.resident_bytes < now.virtual_bytes, "{now:?}");
        let since_1970 = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs_f64();
        let age = since_1970 - now.start_seconds.unwrap();
        assert!((-2.0..100_000.0).contains(&age), "{age} s");
        assert!(now.cpu_seconds.is_some());
    }
}
