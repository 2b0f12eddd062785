# The process behind the package: `unpooled serve --stdio`, one for each R session, which ends when the session does.
#
# Requests go down a pipe, a line each. Answers are appended to a file in the session's private temporary folder, from which
# each is read and deleted: such a file can be waited for without blocking, so that a person can interrupt R.

session <- new.env(parent = emptyenv())

find_command <- function() {
  said <- getOption("unpooled.command", Sys.getenv("UNPOOLED_COMMAND"))
  if (length(said) == 1 && nzchar(said)) {
    found <- Sys.which(path.expand(said))
    if (!nzchar(found) && file.exists(said)) found <- normalizePath(said)
    return(unname(found))
  }
  unname(Sys.which("unpooled"))
}

unpooled_available <- function() nzchar(find_command())

the_command <- function() {
  found <- find_command()
  if (nzchar(found)) return(found)
  fail("missing", paste(
    "the command `unpooled` was not found. It is a Python program (3.11 or newer): install it with",
    "`pip install` from a checkout of unpooled, then put it on the PATH, or say where it is:",
    "options(unpooled.command = \"/path/to/unpooled\")"
  ))
}

# One process per call, where no pipe can be held open: on Windows, or where options(unpooled.single = TRUE) asks for it.
single_calls <- function() {
  isTRUE(getOption("unpooled.single", .Platform$OS.type != "unix"))
}

start <- function() {
  command <- the_command()
  folder <- tempfile("unpooled-")
  dir.create(folder, mode = "0700")
  answers <- file.path(folder, "answers")
  file.create(answers)
  q <- function(name) shQuote(file.path(folder, name))
  # The shell says when the process has ended; an interrupt in a terminal is for the call, not for the shell.
  line <- paste0(
    "trap '' INT; ", shQuote(command), " serve --stdio >> ", q("answers"), " 2>> ", q("errors"), "; echo $? > ", q("ended")
  )
  session$folder <- folder
  session$answers <- answers
  session$owner <- Sys.getpid()
  session$command <- command
  session$state <- Sys.getenv("XDG_STATE_HOME")
  session$count <- 0
  session$requests <- pipe(line, "wb")
  reg.finalizer(session, function(one) try(unpooled_stop(), silent = TRUE), onexit = TRUE)
  session$process <- exchange(list(call = "hello"))$ok$process
}

# A session that forked has a copy of the pipe, which is not its own. A process keeps the environment that it was started in.
running <- function() {
  !is.null(session$requests) && identical(session$owner, Sys.getpid()) && identical(session$command, find_command()) &&
    identical(session$state, Sys.getenv("XDG_STATE_HOME")) && !file.exists(file.path(session$folder, "ended"))
}

unpooled_stop <- function() {
  if (!is.null(session$requests) && identical(session$owner, Sys.getpid())) {
    try(close(session$requests), silent = TRUE)
    unlink(session$folder, recursive = TRUE)
  }
  rm(list = ls(session), envir = session)
  invisible()
}

request <- function(id, ask) {
  paste0("{\"schema\":\"unpooled/serve-request/1\",\"words\":\"r\",\"id\":", id, ",\"ask\":", to_json(ask), "}\n")
}

understood <- function(raw) {
  text <- rawToChar(raw)
  Encoding(text) <- "UTF-8"
  jsonlite::parse_json(text, simplifyVector = TRUE, simplifyDataFrame = FALSE, simplifyMatrix = FALSE)
}

# The next answer, or NULL where none has come within so many seconds. Raises an error where the process has ended.
# `pauses` sleeps: the only place in which an interrupt is taken, so that no answer is lost half way.
next_answer <- function(seconds = Inf, pauses = Sys.sleep) {
  begun <- proc.time()[["elapsed"]]
  pause <- 0.0005
  repeat {
    size <- file.size(session$answers)
    if (!is.na(size) && size > 0) {
      raw <- readBin(session$answers, "raw", size)
      if (raw[length(raw)] == as.raw(10L)) {
        file.create(session$answers)
        return(understood(raw))
      }
    } else if (file.exists(file.path(session$folder, "ended"))) {
      said <- tail_of(file.path(session$folder, "errors"))
      unpooled_stop()
      fail("failed", paste0("the command `unpooled` has ended without an answer", if (nzchar(said)) paste0(": ", said)))
    }
    if (proc.time()[["elapsed"]] - begun > seconds) return(NULL)
    pauses(pause)
    pause <- min(pause * 1.5, 0.02)
  }
}

tail_of <- function(file) {
  lines <- if (file.exists(file)) readLines(file, warn = FALSE) else character()
  if (length(lines)) lines[length(lines)] else ""
}

exchange <- function(ask) {
  session$count <- session$count + 1
  id <- session$count
  line <- charToRaw(enc2utf8(request(id, ask)))
  answer <- NULL
  sent <- FALSE
  on.exit(if (sent && is.null(answer) && !is.null(session$requests)) cut_short())
  suspendInterrupts({
    sent <- TRUE
    writeBin(line, session$requests)
    flush(session$requests)
    answer <- next_answer(pauses = function(seconds) allowInterrupts(Sys.sleep(seconds)))
  })
  if (!identical(as.numeric(answer$id), id)) {
    unpooled_stop()
    fail("failed", "the command `unpooled` answered another request: its process was ended")
  }
  answer
}

# The call was interrupted: the process is told so and its answer thrown away, or it is ended.
cut_short <- function() {
  suspendInterrupts({
    if (!is.null(session$process)) tools::pskill(session$process, tools::SIGINT)
    answer <- tryCatch(next_answer(5), error = function(e) NULL)
    if (is.null(answer)) {
      if (!is.null(session$process)) tools::pskill(session$process, tools::SIGKILL)
      unpooled_stop()
    }
  })
}

exchange_once <- function(ask) {
  command <- the_command()
  files <- tempfile(c("ask", "answer", "errors"))
  on.exit(unlink(files))
  writeBin(charToRaw(enc2utf8(request(1, ask))), files[1])
  system2(command, c("serve", "--stdio"), stdin = files[1], stdout = files[2], stderr = files[3])
  size <- file.size(files[2])
  if (is.na(size) || size == 0) fail("failed", paste("the command `unpooled` gave no answer:", tail_of(files[3])))
  understood(readBin(files[2], "raw", size))
}

# The answer to a call; its error becomes a condition, its warnings become warnings.
ask <- function(call, ..., caller = NULL) {
  asked <- list(call = call, ...)
  if (single_calls()) {
    answer <- exchange_once(asked)
  } else {
    if (!running()) suspendInterrupts({
      unpooled_stop()
      start()
    })
    answer <- exchange(asked)
  }
  relay(answer$warnings, caller)
  if (!is.null(answer$error)) {
    found <- answer$error
    fail(found$kind, found$message, caller,
      code = found$code, type = found$type, party = found$party, column = found$column, release = found$release
    )
  }
  answer$ok
}

unpooled_command <- function(..., folder = getwd()) {
  words <- as.character(unlist(list(...)))
  ask("command", command = I(words), folder = normalizePath(folder), caller = sys.call())$output
}
