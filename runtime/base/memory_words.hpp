// What is said about a worker over its memory limit, in logs, events and advice.
#pragma once

#include "runtime/base/batch_work.hpp"
#include "runtime/base/sample_name.hpp"
#include "runtime/base/units.hpp"
#include "runtime/base/work_kind.hpp"

#include <penstock/report.hpp>

#include <fmt/core.h>

#include <string>

namespace penstock {

/// "; it was loading sample 40 when that was noticed". Empty if it was doing nothing.
[[nodiscard]] inline std::string noticed_in_words(const memory_excess& over, work_kind kind) {
  if (over.work.empty()) return "";
  const std::string work(work_for_people(over.work, kind));
  const std::string sample = over.sample ? sample_for_people(*over.sample, work) : sample_for_people(work);
  const std::string doing = kind == work_kind::batches ? doing_in_words(work) : kind == work_kind::jobs ? "running " + work : "loading " + sample;
  return fmt::format("; it was {} when that was noticed", doing);
}

/// "is replaced after its current batch: it used 1.15 GiB of private memory, but [loader.limits] memory allows 600 MiB; it was loading sample 40
/// when that was noticed".
[[nodiscard]] inline std::string excess_in_words(const memory_excess& over, work_kind kind) {
  return fmt::format("is replaced after its current {}: it used {} of private memory, but [loader.limits] memory allows {}{}",
                     kind == work_kind::jobs ? "job" : "batch", bytes_for_people(over.bytes), bytes_for_people(over.limit_bytes),
                     noticed_in_words(over, kind));
}

}  // namespace penstock
