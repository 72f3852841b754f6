//! Which adapter is chosen, and what is said of it before it is opened.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::sync::Arc;

use minfer_backend_wgpu::{Adapter, OpenOptions, adapters, choose};
use minfer_graph::{Backend, DeviceMemory};
use minfer_tensor::Bytes;

#[test]
fn software_comes_last_and_only_when_it_is_asked_for() {
    if support::adapter().is_none() {
        return;
    }
    let all = adapters();
    assert!(all.is_sorted_by_key(Adapter::kind));
    let unasked = choose(None, false).unwrap();
    assert!(unasked.is_none_or(|adapter| !adapter.is_software()));
    assert_eq!(choose(None, true).unwrap().unwrap().name(), all[0].name());
    for adapter in &all {
        let part = &adapter.name()[..adapter.name().len().min(5)];
        let chosen = choose(Some(&part.to_uppercase()), false).unwrap().unwrap();
        assert!(chosen.name().starts_with(part), "{}", chosen.name());
    }
}

#[test]
fn a_name_that_is_not_there_is_an_error_that_lists_what_is() {
    if support::adapter().is_none() {
        return;
    }
    let error = choose(Some("no such\u{1b}[0m"), true).unwrap_err().to_string();
    assert!(error.contains("no such\\u{1b}[0m"), "{error}");
    assert!(adapters().iter().all(|adapter| error.contains(adapter.name())), "{error}");
}

#[test]
fn b4_the_description_before_opening_is_that_of_the_backend() {
    let Some(adapter) = support::adapter() else { return };
    let backend = adapter.open(OpenOptions::default()).unwrap();
    let (before, opened) = (adapter.spec(), backend.spec());
    assert_eq!((before.name(), before.device_name()), (opened.name(), opened.device_name()));
    assert_eq!(before.fixed_bytes(), opened.fixed_bytes());
    assert_eq!(before.max_buffer_bytes(), opened.max_buffer_bytes());
    assert_eq!((before.buffer_align(), before.is_unified()), (opened.buffer_align(), opened.is_unified()));
    let tall = support::decl(minfer_tensor::DType::F16, 1 << 18, 4096);
    assert_eq!(before.weight_bytes(&tall, true), opened.weight_bytes(&tall, true));
    assert!(before.max_buffer_bytes() >= Bytes::new(128 << 20));
    assert!(!adapter.is_software() || before.is_unified(), "software has the host's memory");
}

#[test]
fn a2_the_driver_says_what_memory_there_is() {
    let Some(adapter) = support::adapter() else { return };
    match adapter.memory() {
        DeviceMemory::Reported { free, total } => {
            assert!(free <= total && total >= Bytes::new(256 << 20), "{free} of {total}");
            assert!(!adapter.memory_is_heap_size() || free == total);
        }
        other => panic!("{}: {other:?}", adapter.name()),
    }
    assert_eq!(adapter.open(OpenOptions::default()).unwrap().spec().name(), "wgpu");
}

#[test]
fn a2_a_provider_replaces_the_driver() {
    let Some(adapter) = support::adapter() else { return };
    let failed = DeviceMemory::QueryFailed { name: "on order".to_owned() };
    let answer = failed.clone();
    let memory: minfer_backend_wgpu::MemoryProvider = Arc::new(move || answer.clone());
    let backend = adapter.open(OpenOptions { memory: Some(memory), ..Default::default() }).unwrap();
    assert_eq!(backend.device_memory(), failed);
}
