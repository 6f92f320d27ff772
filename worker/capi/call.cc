#include "worker/capi/call.h"

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <optional>
#include <thread>

#include "absl/base/attributes.h"
#include "absl/base/thread_annotations.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/synchronization/mutex.h"
#include "common/catch_exceptions.h"
#include "common/errors.h"
#include "common/interruption.h"
#include "common/status.h"
#include "worker/capi/handle_table.h"

namespace cairn::capi {
namespace {

constexpr double kLongestTimeoutSeconds = 1e9;

struct InterruptCheck {
  cairn_interrupt_function function = nullptr;
  void* context = nullptr;
  std::optional<std::thread::id> thread;  // empty: every thread calls it

  bool Applies() const {
    return function != nullptr && (!thread || *thread == std::this_thread::get_id());
  }
};

ABSL_CONST_INIT absl::Mutex interrupt_mutex(absl::kConstInit);
InterruptCheck interrupt_check ABSL_GUARDED_BY(interrupt_mutex);
std::atomic<int64_t> interrupt_checks = 0;  // how often interrupt_check was set

// Takes the lock only in a thread's first call after the check was set.
InterruptCheck CurrentInterruptCheck() {
  thread_local InterruptCheck check;
  thread_local int64_t number = 0;
  if (interrupt_checks.load(std::memory_order_acquire) != number) {
    absl::MutexLock lock(&interrupt_mutex);
    check = interrupt_check;
    number = interrupt_checks.load(std::memory_order_relaxed);
  }
  return check;
}

struct LastError {
  int code = CAIRN_OK;
  std::string message;
};

LastError& OfThisThread() {
  thread_local LastError error;
  return error;
}

bool Requested(void* context) {
  const auto* const check = static_cast<const InterruptCheck*>(context);
  return check->function(check->context) != 0;
}

int SetLastError(const absl::Status& status) {
  LastError& error = OfThisThread();
  error.code = static_cast<int>(status.code());
  error.message = InTermsOfCalls(status.message());
  return error.code;
}

// Allocates nothing: the text fits into an empty string.
int SetOutOfMemory() {
  LastError& error = OfThisThread();
  error.code = static_cast<int>(absl::StatusCode::kResourceExhausted);
  error.message = "out of memory";
  return error.code;
}

// Run without the last resort.
int RunCatching(absl::string_view function, absl::FunctionRef<absl::Status()> body) {
  InterruptCheck check = CurrentInterruptCheck();
  const Interruption interruption(check.Applies() ? Requested : nullptr, &check);
  absl::Status status;
  const absl::Status thrown = CallCatching(function, [&] { status = body(); });
  if (!thrown.ok()) status = thrown;
  if (status.ok()) return CAIRN_OK;
  if (interruption.interrupted()) {
    status = Cancelled(function, ": interrupted while it waited (", status.message(),
                       "); close a client whose push was interrupted and connect again");
  }
  return SetLastError(status);
}

}  // namespace

void Client::Learn(absl::Span<const VariableSpec> specs) {
  absl::MutexLock lock(&mutex_);
  for (const VariableSpec& spec : specs) {
    variables_[spec.name] = {.kind = spec.kind, .dtype = spec.dtype, .shape = spec.shape};
  }
}

absl::StatusOr<KnownVariable> Client::Find(absl::string_view variable) const {
  absl::ReaderMutexLock lock(&mutex_);
  const auto found = variables_.find(variable);
  if (found != variables_.end()) return found->second;
  return NotFound("variable '", variable, "' of job '", job,
                  "': this client has neither created nor described it");
}

absl::StatusOr<Deadline> Client::DeadlineIn(double timeout_seconds) const {
  if (timeout_seconds == 0) return Deadline::In(timeout_);
  if (timeout_seconds > 0 && timeout_seconds <= kLongestTimeoutSeconds) {
    return Deadline::In(absl::Seconds(timeout_seconds));
  }
  return InvalidArgument("timeout is ", timeout_seconds,
                         "; expected seconds above 0, at most 1e9, or 0 for the client's own");
}

int Run(absl::string_view function, absl::FunctionRef<absl::Status()> body) {
  try {
    return RunCatching(function, body);
  } catch (...) {  // no memory for the text of the error
    return SetOutOfMemory();
  }
}

int RunWith(absl::string_view function, const cairn_client* handle, double timeout_seconds,
            absl::FunctionRef<absl::Status(Client&, Deadline)> body) {
  return Run(function, [&]() -> absl::Status {
    absl::StatusOr<std::shared_ptr<void>> found = FindHandle(HandleKind::kClient, handle);
    if (!found.ok()) return Annotate(found.status(), function);
    Client& client = *static_cast<Client*>(found->get());
    const absl::StatusOr<Deadline> deadline = client.DeadlineIn(timeout_seconds);
    if (!deadline.ok()) return Annotate(deadline.status(), function);
    return body(client, *deadline);
  });
}

absl::Status WithoutLine(const absl::Status& status, absl::string_view text,
                         absl::string_view source) {
  if (status.ok() || absl::StripTrailingAsciiWhitespace(text).find('\n') != text.npos)
    return status;
  return absl::Status(status.code(),
                      absl::StrReplaceAll(status.message(), {{absl::StrCat(source, ":1: "), ""}}));
}

std::string InTermsOfCalls(absl::string_view message) {
  return absl::StrReplaceAll(
      message, {{" (--fresh)", ""},
                {"start over with --fresh", "drop the job and start over"},
                {"(checkpoint.restore names another one; ", "(another one can be restored; "},
                {"name another checkpoint by checkpoint.restore", "restore another checkpoint"},
                {"checkpoint.restore: ", "restore: "},
                {"restore a checkpoint (checkpoint.directory)", "restore a checkpoint"},
                {"relative paths start at --data_root ", "relative paths start at "},
                {"--allow_plaintext", "allow_plaintext"},
                {"--local_transport=off", "local_transport: off"},
                {"--local_transport=any_user", "local_transport: any_user"},
                {" (of an in-process server: storage.memory_budget_bytes)", ""},
                {"--memory_budget_bytes", "memory_budget_bytes"},
                {"--tls_", "tls_"},
                {"--token_file", "token_file"}});
}

char* CopyText(absl::string_view text) {
  char* const copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy == nullptr) throw std::bad_alloc();
  std::memcpy(copy, text.data(), text.size());
  copy[text.size()] = '\0';
  return copy;
}

absl::Status CheckNotNull(const void* pointer, absl::string_view what) {
  if (pointer != nullptr) return absl::OkStatus();
  return InvalidArgument(what, " is null");
}

extern "C" {

int cairn_last_error_code(void) { return OfThisThread().code; }

const char* cairn_last_error_message(void) { return OfThisThread().message.c_str(); }

void cairn_set_interrupt_check(cairn_interrupt_function function, void* context,
                               int this_thread_only) {
  InterruptCheck check{function, context, {}};
  if (this_thread_only != 0) check.thread = std::this_thread::get_id();
  absl::MutexLock lock(&interrupt_mutex);
  interrupt_check = check;
  interrupt_checks.fetch_add(1, std::memory_order_release);
}

}  // extern "C"

}  // namespace cairn::capi
