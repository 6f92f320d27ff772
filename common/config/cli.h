// Flags of a program, declared once for parsing, --help and the shells' completion. CLI11 does the
// work; only the files that need its own interface include it, because it takes seconds to compile.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace CLI {
class App;
}  // namespace CLI

namespace cairn {

// Declares flags under one heading of --help. Thread safety: none.
class Flags {
 public:
  // `app` must outlive this object.
  explicit Flags(CLI::App& app, std::string heading = "Flags");

  // Declares --name, given as "--name=value" or "--name value"; the last one counts.
  //   type   what --help writes for the value, as in "FILE"; "" for a bool, which may also be given
  //          as --name and --noname.
  //   value  outlives `app`; holds the default until the flag is given.
  // T: std::string (no URL), int32_t, int64_t, uint64_t, double, bool, std::optional<int32_t>,
  // std::optional<int64_t>, or std::vector<std::string>, to which every occurrence is appended.
  template <typename T>
  Flags& Add(const std::string& name, const std::string& type, T& value, const std::string& text);

 private:
  CLI::App& app_;
  const std::string heading_;
};

// The result of parsing a command line.
struct ParsedLine {
  // kInvalidArgument: an unknown flag or command (the message gives the nearest name), a missing or
  // invalid value, or an unexpected word.
  absl::Status status;
  std::string command;  // "cairn-ps", "cairnctl checkpoint list"
  std::string text;  // the text of --help, --version or --completion, to print instead of running
};

// Parses `arguments`, which exclude the program's name.
ParsedLine Parse(CLI::App& app, absl::Span<const char* const> arguments);

// Gives `app` the --help flag and the common layout of its text.
void AddHelp(CLI::App& app);
void AddVersionFlag(CLI::App& app);

// A program without commands. Thread safety: none.
class Program {
 public:
  // `purpose` is the first line of --help, `footer` its end.
  Program(const std::string& name, const std::string& purpose, const std::string& footer);

  Flags flags(const std::string& heading = "Flags") { return Flags(*app_, heading); }

  // Adds --help, --version and --completion SHELL, and parses. To be called once.
  ParsedLine Parse(absl::Span<const char* const> arguments);

 private:
  std::shared_ptr<CLI::App> app_;
};

// Writes `text` to stdout. Returns the program's exit status: 0, or 1 if writing fails.
int PrintText(const std::string& text);

}  // namespace cairn
