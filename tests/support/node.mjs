// Runs programs for Node one after another in one process: each is imported again, so it has no state of the last.
//
// A line of the input is JSON: the `path` of a program, its `arguments`, and `ends`, "by itself" when all of its code
// has run, or with process.exit. The line that answers has its exit `code`, and what it printed. A program may start
// another one for a client: if the first word is "asked", the line says so, and the next line of the input answers it.
import childProcess from "node:child_process";
import { EventEmitter } from "node:events";
import { syncBuiltinESMExports } from "node:module";
import net from "node:net";
import readline from "node:readline";
import { pathToFileURL } from "node:url";
import { inspect } from "node:util";

const say = process.stdout.write.bind(process.stdout);
const tell = message => say(`${JSON.stringify(message)}\n`);
const spawn = childProcess.spawn;
const Ended = Symbol("the program has ended");

let count = 0;
let running;
let asked;

const print = name => (text, ...rest) => {
  if (running) running[name] += Buffer.from(text).toString();
  rest.find(each => typeof each === "function")?.();
  return true;
};
process.stdout.write = print("stdout");
process.stderr.write = print("stderr");

// Closes what the program has left open, as the end of a process would, and lets it see that.
async function end(code) {
  if (!running) return;
  const { stdout, stderr } = running;
  running = undefined;
  const ours = new Set([process.stdin, process.stdout, process.stderr]);
  for (const handle of process._getActiveHandles()) {
    if (handle instanceof net.Socket && !ours.has(handle)) handle.destroy();
    if (handle instanceof net.Server) handle.close();
  }
  for (let turn = 0; turn < 10; turn++) await new Promise(setImmediate);
  tell({ code, stdout, stderr });
}

process.exit = code => {
  end(code ?? 0);
  throw Ended;
};
const fail = error => {
  if (error === Ended || !running) return;
  running.stderr += inspect(error);
  end(1);
};
process.on("unhandledRejection", fail);
process.on("uncaughtException", fail);

childProcess.spawn = (command, words, options) => {
  if (command !== "asked") return spawn(command, words, options);
  asked = new EventEmitter();
  asked.stdout = new EventEmitter();
  asked.stderr = new EventEmitter();
  asked.kill = () => true;
  tell({ asked: words, env: options.env });
  return asked;
};
syncBuiltinESMExports();

for await (const line of readline.createInterface({ input: process.stdin })) {
  const given = JSON.parse(line);
  if ("path" in given) {
    running = { stdout: "", stderr: "" };
    process.argv = [process.argv[0], given.path, ...given.arguments];
    const program = import(`${pathToFileURL(given.path)}?${++count}`);
    program.then(() => given.ends === "by itself" && end(0), fail);
  } else {
    asked.stdout.emit("data", given.stdout);
    asked.stderr.emit("data", given.stderr);
    asked.emit("close", given.code);
  }
}
process.reallyExit(0);
