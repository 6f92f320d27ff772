// Functions that a program passes to a strategy or coordinator.
#pragma once

#include <cstddef>
#include <functional>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/catch_exceptions.h"
#include "worker/strategy/value.h"

namespace cairn {

// Whether a type is a std::function, which may be empty.
template <typename Function>
inline constexpr bool kIsStdFunction = false;
template <typename Signature>
inline constexpr bool kIsStdFunction<std::function<Signature>> = true;

// Any callable that takes `Args`, or nothing, and returns void, absl::Status, a Value, or
// absl::StatusOr of one. void and Status return no value (Value::Kind::kNone).
// Thread safety: that of the callable.
template <typename... Args>
class ValueFunction {
 public:
  // An empty function.
  ValueFunction(std::nullptr_t = nullptr) {}  // NOLINT(google-explicit-constructor)
  template <typename Function, typename Kept = std::decay_t<Function>>
  requires(!std::is_same_v<Kept, ValueFunction> &&
           (std::is_invocable_v<Kept&, Args...> || std::is_invocable_v<Kept&>))
      ValueFunction(
          Function&& function) {  // NOLINT(google-explicit-constructor): lambdas are given
    if constexpr (std::is_pointer_v<std::remove_cvref_t<Function>> || kIsStdFunction<Kept>) {
      if (function == nullptr) return;
    }
    call_ = [kept = Kept(std::forward<Function>(function))](
                [[maybe_unused]] Args... args) mutable -> absl::StatusOr<Value> {
      const auto call = [&]() -> decltype(auto) {
        if constexpr (std::is_invocable_v<Kept&, Args...>) {
          return kept(std::forward<Args>(args)...);
        } else {
          return kept();
        }
      };
      using Result = std::remove_cvref_t<decltype(call())>;
      static_assert(std::is_void_v<Result> || std::is_convertible_v<Result, absl::StatusOr<Value>>,
                    "the function must return void, absl::Status, Value or absl::StatusOr<Value>");
      if constexpr (std::is_void_v<Result>) {
        call();
        return Value();
      } else if constexpr (std::is_same_v<Result, absl::Status>) {
        absl::Status status = call();
        if (!status.ok()) return status;
        return Value();
      } else {
        return call();
      }
    };
  }

  friend bool operator==(const ValueFunction& function, std::nullptr_t) {
    return function.call_ == nullptr;
  }

  // Calls the function and returns its result; messages name the function `whose`. kUnknown: the
  // function threw an exception. kInvalidArgument: the function is empty.
  absl::StatusOr<Value> Call(absl::string_view whose, Args... args) const {
    if (call_ == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(whose, ": no function was given"));
    }
    return CatchExceptions(whose, [&] { return call_(std::forward<Args>(args)...); });
  }

 private:
  std::function<absl::StatusOr<Value>(Args...)> call_;
};

}  // namespace cairn
