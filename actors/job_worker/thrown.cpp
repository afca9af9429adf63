#include "actors/job_worker/thrown.hpp"

#include "runtime/base/thrown.hpp"
#include "runtime/base/write_all.hpp"

#include <penstock/error.hpp>
#include <penstock/job.hpp>

#include <cxxabi.h>
#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <string>
#include <utility>

namespace penstock::job_worker {

arena::job_exception_text thrown() {
  std::string type = thrown_type();
  try {
    throw;
  } catch (const job_exception& e) {
    return {e.type(), e.what(), e.traceback()};
  } catch (const std::exception& e) {
    return {std::move(type), text_of(e), {}};
  } catch (const std::string& text) {
    return {std::move(type), text, {}};
  } catch (const char* text) {
    return {std::move(type), text != nullptr ? text : "a null pointer", {}};
  } catch (const abi::__forced_unwind&) {
    static_cast<void>(
        write_all(STDERR_FILENO, "penstock: a function ended the thread that called it (pthread_exit)\n"));
    std::abort();
  } catch (...) {
    return {std::move(type), "an exception that is not a std::exception", {}};
  }
}

}  // namespace penstock::job_worker
