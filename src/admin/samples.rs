//! Values of metrics, and their text.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use super::metrics::{ALL, Metric, MetricKind};
use crate::counters::HistogramValue;

/// Nanoseconds of a second.
const SECOND: f64 = 1e9;

/// Values that were collected at one moment.
#[derive(Debug, Default)]
pub struct Samples(Vec<Sample>);

#[derive(Debug)]
struct Sample {
    metric: &'static Metric,
    /// Values of the metric's labels.
    labels: Vec<String>,
    value: SampleValue,
}

#[derive(Debug)]
enum SampleValue {
    Integer(u64),
    Real(f64),
    /// The observations, and how many of their units make one of the metric's.
    Observed(HistogramValue, f64),
}

impl Samples {
    /// Adds the value of a counter or a gauge. `labels` are the values of the metric's labels.
    pub fn add(&mut self, metric: &'static Metric, labels: &[&str], value: u64) {
        self.push(metric, labels, SampleValue::Integer(value));
    }

    /// As [`Samples::add`], for a number of objects in memory.
    pub fn add_len(&mut self, metric: &'static Metric, labels: &[&str], value: usize) {
        self.add(metric, labels, u64::try_from(value).unwrap_or(u64::MAX));
    }

    /// As [`Samples::add`], for a value with a fraction.
    pub fn add_real(&mut self, metric: &'static Metric, labels: &[&str], value: f64) {
        self.push(metric, labels, SampleValue::Real(value));
    }

    /// Adds times that were observed in nanoseconds.
    pub fn add_times(&mut self, metric: &'static Metric, labels: &[&str], value: HistogramValue) {
        self.push(metric, labels, SampleValue::Observed(value, SECOND));
    }

    /// Adds observations in the metric's unit.
    pub fn add_observed(&mut self, metric: &'static Metric, value: HistogramValue) {
        self.push(metric, &[], SampleValue::Observed(value, 1.0));
    }

    fn push(&mut self, metric: &'static Metric, labels: &[&str], value: SampleValue) {
        debug_assert_eq!(metric.labels.len(), labels.len(), "{}", metric.name);
        let labels = labels.iter().map(|label| (*label).to_owned()).collect();
        self.0.push(Sample { metric, labels, value });
    }

    /// The text of all metrics.
    ///
    /// # Errors
    /// A value cannot be formatted.
    pub(super) fn encode(self) -> Result<String, fmt::Error> {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self));
        let mut text = String::new();
        encode(&mut text, &registry)?;
        Ok(text)
    }
}

impl Collector for Samples {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for metric in ALL {
            let kind = match metric.kind {
                MetricKind::Counter => MetricType::Counter,
                MetricKind::Gauge => MetricType::Gauge,
                MetricKind::Histogram => MetricType::Histogram,
            };
            let unit = metric.unit.map(|unit| Unit::Other(unit.to_owned()));
            let described =
                encoder.encode_descriptor(metric.name, metric.help, unit.as_ref(), kind);
            let mut encoder = described?;
            for sample in self.0.iter().filter(|sample| std::ptr::eq(sample.metric, *metric)) {
                sample.encode(&mut encoder)?;
            }
        }
        Ok(())
    }
}

impl Sample {
    fn encode(&self, encoder: &mut MetricEncoder<'_>) -> Result<(), fmt::Error> {
        let names = self.metric.labels.iter().copied();
        let labels: Vec<(&str, &str)> = names.zip(self.labels.iter().map(String::as_str)).collect();
        if labels.is_empty() {
            return self.encode_value(encoder);
        }
        self.encode_value(&mut encoder.encode_family(&labels)?)
    }

    fn encode_value(&self, encoder: &mut MetricEncoder<'_>) -> Result<(), fmt::Error> {
        match (&self.value, self.metric.kind) {
            (SampleValue::Integer(value), MetricKind::Counter) => {
                encoder.encode_counter::<NoLabelSet, u64, u64>(value, None)
            }
            (SampleValue::Real(value), MetricKind::Counter) => {
                encoder.encode_counter::<NoLabelSet, f64, f64>(value, None)
            }
            (SampleValue::Integer(value), _) => encoder.encode_gauge(value),
            (SampleValue::Real(value), _) => encoder.encode_gauge(value),
            (SampleValue::Observed(observed, units), _) => {
                let bounds = observed.bounds.iter().map(|bound| *bound as f64 / units);
                let bounds = bounds.chain([f64::INFINITY]);
                let buckets: Vec<_> = bounds.zip(observed.counts.iter().copied()).collect();
                let sum = observed.sum as f64 / units;
                encoder.encode_histogram::<NoLabelSet>(sum, observed.count(), &buckets, None)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::metrics::{
        BATCH_OPERATIONS, BUILD_INFO, QUOTA_USED_BYTES, RPC_DURATION, RPC_RETRANSMISSIONS,
    };
    use super::*;

    fn lines(samples: Samples, of: &str) -> Vec<String> {
        let text = samples.encode().unwrap();
        assert!(text.ends_with("# EOF\n"));
        text.lines().filter(|line| line.starts_with(of)).map(str::to_owned).collect()
    }

    #[test]
    fn names_have_their_unit_and_counters_their_suffix() {
        let mut samples = Samples::default();
        samples.add(&RPC_RETRANSMISSIONS, &[], 7);
        samples.add(&QUOTA_USED_BYTES, &["a\"\n\\"], 8);
        samples.add(&BUILD_INFO, &["1.0"], 1);
        let text = samples.encode().unwrap();
        let expected = [
            "acetate_rpc_retransmissions_total 7",
            "acetate_quota_used_bytes{export=\"a\\\"\\n\\\\\"} 8",
            "acetate_build_info{version=\"1.0\"} 1",
            "# UNIT acetate_quota_used_bytes bytes",
        ];
        for line in expected {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
    }

    #[test]
    fn buckets_are_cumulative_and_in_seconds() {
        const BOUNDS: &[u64; 2] = &[50_000, 1_000_000_000];
        let value = HistogramValue { bounds: BOUNDS, counts: vec![1, 2, 3], sum: 2_500_000_000 };
        let mut samples = Samples::default();
        samples.add_times(&RPC_DURATION, &["nfs", "read"], value.clone());
        let of_read = "{program=\"nfs\",procedure=\"read\"}";
        let bucket = |le: &str, count: u64| {
            let labels = format!("le=\"{le}\",program=\"nfs\",procedure=\"read\"");
            format!("acetate_rpc_duration_seconds_bucket{{{labels}}} {count}")
        };
        let expected = [
            format!("acetate_rpc_duration_seconds_sum{of_read} 2.5"),
            format!("acetate_rpc_duration_seconds_count{of_read} 6"),
            bucket("0.00005", 1),
            bucket("1.0", 3),
            bucket("+Inf", 6),
        ];
        assert_eq!(lines(samples, "acetate_rpc_duration_seconds"), expected);
        let mut samples = Samples::default();
        samples.add_observed(&BATCH_OPERATIONS, value);
        assert!(lines(samples, "acetate_batch_operations_bucket{le=\"50000.0\"} 1").len() == 1);
    }
}
