// What a loader host has prepared for the sessions that it serves: listings of datasets, and the code of pools. A dataset that
// all ranks of a group load is listed once. Used by loader_host; any thread.
#pragma once

#include "actors/remote/host_connection.hpp"
#include "actors/remote/host_program.hpp"
#include "runtime/process/io_thread.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace penstock::hosts {

class host_datasets {
 public:
  /// `data`: where the sessions' folders are on this machine. If it is not empty, only files in these folders are read.
  /// `dataset_program`: the command for custom datasets.
  host_datasets(process::io_thread& io, string_map data, own_program program, std::vector<std::string> dataset_program);

  /// Can take minutes; calls for other datasets do not wait meanwhile. Refuses (errc::config) code that this host cannot or must
  /// not run (rule H7), and whatever prepare_dataset, describe_custom_on_host and config_on_host refuse.
  result<std::shared_ptr<const ready_dataset>> prepare(const session_offer& offer);
  /// Call when the host is leaving: stops waiting for a worker program to describe its dataset.
  void give_up() noexcept { given_up_ = true; }
  /// Drops everything that no connection uses, except the last listing, which the next session may need.
  void forget_unused();

 private:
  struct listing {
    std::string key;
    std::mutex making;
    std::shared_ptr<const prepared_dataset> made;
  };
  struct entry {
    session_offer offer;
    std::mutex making;
    std::shared_ptr<const ready_dataset> made;
    std::uint32_t failures = 0;
    failure last_failure;
  };
  result<std::shared_ptr<const ready_dataset>> make(const session_offer& offer);
  result<std::shared_ptr<const prepared_dataset>> list(const config& here);
  result<void> describe(const config& here, ready_dataset& made);
  result<std::shared_ptr<host_program>> program_for(const session_offer& offer, bool forks);

  process::io_thread& io_;
  const string_map data_;
  const own_program program_;
  const std::vector<std::string> dataset_program_;
  std::atomic<bool> given_up_ = false;
  std::mutex mutex_;  // guards the rest
  std::vector<std::shared_ptr<entry>> entries_;
  std::vector<std::shared_ptr<listing>> listings_;
};

}  // namespace penstock::hosts
