// What every program wants before it opens a file or starts a thread.
#pragma once

namespace cairn {

// For the beginning of main; `program` is its name in messages and stays valid.
//
// Standard input, output and error that are closed become /dev/null, opened so that using them
// still fails: else the next file to be opened had their number, and got what is printed.
// A file size limit is an error of the write that meets it (EFBIG), not the end of the process.
// Where memory or threads run out in a place that cannot return it, the process ends with exit
// status 1 and says so in a last line on stderr; other exceptions that nobody catches abort it.
void PrepareProcess(const char* program);

}  // namespace cairn
