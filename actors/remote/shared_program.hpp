// What a pool shares with its workers on loader hosts, besides their jobs: code, versions, files, marks (rule H13). Made by
// actors/jobs, used by the session's connections.
#pragma once

#include "actors/remote/host_messages.hpp"
#include "runtime/base/fd.hpp"
#include "runtime/base/mapping.hpp"
#include "runtime/base/result.hpp"

#include <penstock/config.hpp>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>

namespace penstock::hosts {

struct shelved_file {
  std::shared_ptr<const unique_fd> file;
  std::uint64_t bytes = 0;
};

/// Files that the pool's program has published for its jobs, by number. Any thread.
class file_shelf {
 public:
  /// Keeps a duplicate. Refuses (errc::system); a number is used once.
  result<void> publish(std::uint64_t number, int file);
  /// Drops the file: no further job needs it.
  void withdraw(std::uint64_t number);
  [[nodiscard]] std::map<std::uint64_t, shelved_file> all() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::uint64_t, shelved_file> files_;
};

/// The file in which each job notes its current work, as a mark: an array of pairs (job number, mark), indexed by the job number modulo
/// the number of pairs. Written by workers, read after their deaths.
class job_marks {
 public:
  /// Maps a file. Refuses (errc::system).
  static result<job_marks> map(int file, std::uint64_t bytes);

  /// What the job has marked; -1: nothing.
  [[nodiscard]] std::int64_t of(std::uint64_t job) const;
  void set(std::uint64_t job, std::int64_t mark) const;
  [[nodiscard]] std::uint64_t bytes() const noexcept { return memory_.bytes().size(); }

 private:
  explicit job_marks(mapping memory) : memory_(std::move(memory)) {}
  [[nodiscard]] std::uint64_t* pair_of(std::uint64_t job) const;

  mapping memory_;
};

struct shared_program {
  std::string kind;  ///< "Python": the host starts its own program of that kind
  string_map facts;  ///< versions that must be the same on both sides
  std::string code;  ///< what each worker reads before its first job
  std::uint64_t nonce = 0;
  std::unique_ptr<const job_marks> marks{};  ///< null: jobs mark nothing
  file_shelf files{};
};

/// Describes the program in the session's first message. The code follows that message as raw bytes.
void describe(const shared_program& program, welcome& in);
[[nodiscard]] inline std::span<const std::byte> code_of(const shared_program* program) {
  return program == nullptr ? std::span<const std::byte>() : std::as_bytes(std::span(program->code));
}

}  // namespace penstock::hosts
