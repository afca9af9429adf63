#include "actors/gpu_owner/job_programs.hpp"

#include "runtime/base/stage_range.hpp"
#include "runtime/base/text.hpp"
#include "runtime/base/thrown.hpp"
#include "runtime/base/units.hpp"

#include <penstock/job_program.hpp>

#include <dlfcn.h>
#include <unistd.h>

#include <cerrno>
#include <exception>
#include <filesystem>
#include <new>

namespace penstock::gpu_owner {
namespace {

/// The failure that a program's exception describes.
failure as_failure(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const error& e) {
    return e.as_failure();
  } catch (const std::bad_alloc&) {
    return {errc::device_out_of_memory, "out of memory (std::bad_alloc)", 0};
  } catch (...) {
    return {errc::sink, thrown_text(), 0};
  }
}

bool costs_the_device(errc code) {
  return code == errc::device_poisoned || code == errc::device_hardware;
}

result<std::unique_ptr<JobProgram>> load(const std::string& path) {
  // Without a slash in the name, dlopen() would search the system's library folders.
  const std::string absolute = std::filesystem::absolute(path).native();
  void* const library = ::dlopen(absolute.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return refuse(errc::sink, "opening it: {}", ::dlerror());
  const auto* entry = static_cast<const job_program_entry*>(::dlsym(library, "penstock_job_program"));
  if (entry == nullptr) return refuse(errc::sink, "'{}' lacks PENSTOCK_JOB_PROGRAM(...)", printable(path));
  if (entry->version != job_program_version) {
    return refuse(errc::sink, "'{}' was built for interface {}, but this penstock has {}: rebuild it",
                  printable(path), entry->version, job_program_version);
  }
  try {
    return std::unique_ptr<JobProgram>(entry->make());
  } catch (...) {
    const failure why = as_failure(std::current_exception());
    return refuse(errc::sink, "{}", with_cause("starting it", why.message));
  }
}

}  // namespace

result<void> check_programs(const std::map<std::string, std::string>& programs) {
  for (const auto& [name, path] : programs) {
    if (::access(path.c_str(), R_OK) == 0) continue;
    return refuse_os(errc::config, errno,
                     fmt::format("[jobs.programs] {} = '{}'", printable(name), printable(path)));
  }
  return {};
}

class job_programs::room_of_job final : public DeviceJob::room {
 public:
  explicit room_of_job(job_programs& around) : around_(around) {}

  std::span<std::byte> result(std::uint64_t bytes) override {
    if (bytes > program_result_bytes_max) {
      too_large = true;
      throw error({errc::out_of_memory,
                   fmt::format("its result is {}, but the limit is {}: keep larger results on the device",
                               bytes_for_people(bytes), bytes_for_people(program_result_bytes_max)),
                   0});
    }
    given.resize(bytes);
    return given;
  }

  void* memory(std::uint64_t bytes) override {
    if (bytes <= around_.memory_bytes_) return around_.memory_;
    // Wait first, because queued work may still use the old memory.
    value_or_throw(around_.device_->finish_program());
    if (around_.memory_ != nullptr) around_.device_->give_back_memory(around_.memory_);
    around_.memory_ = nullptr;
    around_.memory_bytes_ = 0;
    around_.memory_ = value_or_throw(around_.device_->take_memory(bytes));
    around_.memory_bytes_ = bytes;
    return around_.memory_;
  }

  std::vector<std::byte> given;
  bool too_large = false;

 private:
  job_programs& around_;
};

job_programs::job_programs(std::shared_ptr<device::device> device,
                           const std::map<std::string, std::string>& programs)
    : device_(std::move(device)) {
  for (const auto& [name, path] : programs) programs_.push_back({name, path});
}

job_programs::~job_programs() {
  if (memory_ != nullptr) device_->give_back_memory(memory_);
}

result<JobProgram*> job_programs::find(std::uint32_t index) {
  if (index >= programs_.size()) return refuse(errc::protocol, "there is no program {}", index);
  program& wanted = programs_[index];
  if (!wanted.loaded) {
    auto made = load(wanted.path);
    if (!made) return tl::unexpected(std::move(made.error()));
    wanted.loaded = std::move(*made);
  }
  return wanted.loaded.get();
}

result<void> job_programs::enter() {
  if (stream_) return {};
  auto stream = device_->enter_programs();
  if (!stream) return tl::unexpected(std::move(stream.error()));
  stream_ = *stream;
  return {};
}

result<void> job_programs::call(JobProgram& code, const ready_batch& job, room_of_job& room,
                                const std::string& what) {
  const stage_range range("device program");
  DeviceJob view(
      {device_->address(job.buffer), job.job->bytes, device_->on_host(), job.position, job.job->function},
      room);
  std::optional<failure> thrown;
  try {
    code.on_result(view, *stream_);
  } catch (...) {
    thrown = as_failure(std::current_exception());
  }
  // Wait even after an exception, because work that the program has queued may use the buffer.
  auto done = device_->finish_program();
  if (!done && (costs_the_device(done.error().code) || !thrown)) thrown = std::move(done.error());
  if (!thrown) return {};
  thrown->message = with_cause(what, thrown->message);
  return tl::unexpected(std::move(*thrown));
}

result<jobs::device_answer> job_programs::run(const ready_batch& job) {
  jobs::device_answer answer{job.upload};
  const auto fail = [&](const failure& why) {
    answer.how = jobs::device_answer::kind::device;
    answer.text = why.message;
    return answer;
  };
  if (job.refused) return fail(*job.refused);
  if (auto ok = enter(); !ok) return tl::unexpected(std::move(ok.error()));
  if (job.job->program != job_upload::no_program) {
    const auto code = find(job.job->program);
    const std::string name =
        job.job->program < programs_.size() ? programs_[job.job->program].name : std::string("?");
    const std::string what = fmt::format("the device program '{}'", printable(name));
    if (!code) return fail({code.error().code, what + ": " + code.error().message, 0});
    room_of_job room(*this);
    if (auto ok = call(**code, job, room, what); !ok) {
      if (costs_the_device(ok.error().code)) return tl::unexpected(std::move(ok.error()));
      fail(ok.error());
      if (room.too_large) answer.how = jobs::device_answer::kind::too_large;
      return answer;
    }
    answer.bytes = std::move(room.given);
  }
  if (job.job->kept) answer.buffer = job.buffer;
  return answer;
}

}  // namespace penstock::gpu_owner
