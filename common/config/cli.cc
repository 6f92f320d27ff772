#include "common/config/cli.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/config/local_path.h"
#include "common/nearest.h"

namespace cairn {
namespace {

bool ReadValue(const std::string& text, std::string* value) {
  *value = text;
  return true;
}
bool ReadValue(const std::string& text, double* value) { return absl::SimpleAtod(text, value); }
template <typename T>
bool ReadValue(const std::string& text, T* value) {
  if (absl::StartsWithIgnoreCase(text, "0x")) return absl::SimpleHexAtoi(text, value);
  return absl::SimpleAtoi(text, value);
}
template <typename T>
bool ReadValue(const std::string& text, std::optional<T>* value) {
  return ReadValue(text, &value->emplace());
}

template <typename T>
absl::string_view Expected() {
  if (std::is_floating_point_v<T>) return "a number";
  if (std::is_unsigned_v<T>) return "a whole number from 0 to 2^64 - 1";
  return sizeof(T) <= sizeof(int32_t) || std::is_same_v<T, std::optional<int32_t>>
             ? "a whole number of 32 bits"
             : "a whole number of 64 bits";
}

template <typename T>
void SetValue(const std::string& flag, const std::string& word, T* value) {
  if constexpr (std::is_same_v<T, std::string>) {
    const absl::Status local = CheckLocalPath(absl::StrCat("flag ", flag), word);
    if (!local.ok()) {
      throw CLI::ConversionError(std::string(local.message()), CLI::ExitCodes::ConversionError);
    }
  }
  if (ReadValue(word, value)) return;
  throw CLI::ConversionError(
      absl::StrCat("flag ", flag, ": found ", QuotedName(word), ", expected ", Expected<T>()),
      CLI::ExitCodes::ConversionError);
}

// CLI11 reads more words than Abseil's flags do ("on", "3"); --noname sets false.
CLI::Option* AddSwitch(CLI::App& app, const std::string& name, bool& value,
                       const std::string& text) {
  CLI::Option* const flag = app.add_flag(absl::StrCat("--", name, ",!--no", name), value, text)
                                ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  flag->check([](const std::string& word) {
    bool read = false;
    return absl::SimpleAtob(word, &read)
               ? std::string()
               : absl::StrCat("found ", QuotedName(word), ", expected true or false");
  });
  return flag;
}

CLI::Option* AddRepeated(CLI::App& app, const std::string& name, std::vector<std::string>& values,
                         const std::string& text) {
  return app.add_option(absl::StrCat("--", name), values, text)->allow_extra_args(false);
}

}  // namespace

Flags::Flags(CLI::App& app, std::string heading) : app_(app), heading_(std::move(heading)) {}

template <typename T>
Flags& Flags::Add(const std::string& name, const std::string& type, T& value,
                  const std::string& text) {
  CLI::Option* option = nullptr;
  if constexpr (std::is_same_v<T, bool>) {
    option = AddSwitch(app_, name, value, text);
  } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
    option = AddRepeated(app_, name, value, text);
  } else {
    const std::string flag = absl::StrCat("--", name);
    const CLI::callback_t set = [flag, &value](const CLI::results_t& words) {
      SetValue(flag, words.back(), &value);
      return true;
    };
    option =
        app_.add_option(flag, set, text)->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  }
  option->type_name(type)->group(heading_);
  return *this;
}

template Flags& Flags::Add(const std::string&, const std::string&, std::string&,
                           const std::string&);
template Flags& Flags::Add(const std::string&, const std::string&, int32_t&, const std::string&);
template Flags& Flags::Add(const std::string&, const std::string&, int64_t&, const std::string&);
template Flags& Flags::Add(const std::string&, const std::string&, uint64_t&, const std::string&);
template Flags& Flags::Add(const std::string&, const std::string&, double&, const std::string&);
template Flags& Flags::Add(const std::string&, const std::string&, bool&, const std::string&);
template Flags& Flags::Add(const std::string&, const std::string&, std::optional<int32_t>&,
                           const std::string&);
template Flags& Flags::Add(const std::string&, const std::string&, std::optional<int64_t>&,
                           const std::string&);
template Flags& Flags::Add(const std::string&, const std::string&, std::vector<std::string>&,
                           const std::string&);

}  // namespace cairn
