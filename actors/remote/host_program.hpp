// Everything that runs a pool's jobs on a loader host: the host's own program, the code that the session has sent, and the
// files that its jobs need (rule H13). Shared by all workers of a host. Used by loader_host, host_connection and
// hosted_worker.
#pragma once

#include "actors/remote/shared_program.hpp"
#include "runtime/process/io_thread.hpp"
#include "runtime/process/worker_template.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace penstock::hosts {

/// A program that this host can start for sessions.
struct own_program {
  std::string kind;  ///< as the session names it: "Python"; empty: none
  std::vector<std::string> command{};
  string_map environment{};
  string_map facts{};  ///< versions
};

/// The session's files that have arrived. Any thread.
class host_files {
 public:
  enum class standing : std::uint8_t { here, to_be_fetched, on_its_way };
  /// `who`: identifies the connection that asks. to_be_fetched is returned once: that connection must fetch
  /// the file.
  standing look(std::uint64_t number, const void* who);
  [[nodiscard]] shelved_file find(std::uint64_t number) const;
  void arrived(std::uint64_t number, shelved_file file);
  /// Call when this connection will fetch no more files. Those that it has not fetched become to_be_fetched
  /// again.
  void gone(const void* who);

 private:
  /// More than a program uses at a time. Older files are dropped, and fetched again if a job needs them.
  static constexpr std::size_t files_max = 4;

  mutable std::mutex mutex_;
  std::map<std::uint64_t, shelved_file> here_;
  std::map<std::uint64_t, const void*> fetched_by_;
};

/// Forks the host's workers. Used on the io thread.
class host_template {
 public:
  /// start() works like linked_child_request::start_with. `died`: called if the template ends before it has
  /// forked this worker.
  using death = std::function<void(pid_t, const process::exit_report&, const process::output_tail&)>;
  host_template(process::io_thread& io, process::spawn_request program);
  std::shared_ptr<process::start_control> start(std::uint32_t worker, process::spawn_request request,
                                                process::spawner::done then, death died);

 private:
  std::map<std::uint32_t, death> waiting_;
  std::uint32_t deaths_ = 0;
  std::unique_ptr<process::worker_template> template_;
};

class host_program {
 public:
  /// Refuses (errc::system).
  static result<std::shared_ptr<host_program>> make(process::io_thread& io, const own_program& own, const std::string& code,
                                                    std::uint64_t marks_bytes, bool forks);
  ~host_program();
  host_program(const host_program&) = delete;
  host_program& operator=(const host_program&) = delete;

  [[nodiscard]] const own_program& own() const noexcept { return own_; }
  /// The complete environment of this worker.
  [[nodiscard]] std::vector<std::string> environment(std::uint32_t worker) const;
  /// What jobs mark; null if they mark nothing.
  [[nodiscard]] const job_marks* marks() const noexcept { return marks_.get(); }
  [[nodiscard]] host_files& files() noexcept { return files_; }
  /// The template that forks workers; null if workers start with exec. Call on the io thread.
  [[nodiscard]] host_template* forker();

 private:
  host_program(process::io_thread& io, own_program own, bool forks) : io_(io), own_(std::move(own)), forks_(forks) {}

  process::io_thread& io_;
  const own_program own_;
  const bool forks_;
  unique_fd code_;
  unique_fd marks_file_;
  std::unique_ptr<const job_marks> marks_;
  host_files files_;
  std::unique_ptr<host_template> template_;  // used on the io thread
};

}  // namespace penstock::hosts
