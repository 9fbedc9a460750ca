#!/usr/bin/env node
// Runs the public suite https://github.com/http-tests/cache-tests by `thalweg proxy` and without a proxy, and sorts what
// fails by its reason. The suite is not part of this project: give a checkout in which `npm install` was run.
//
//   scripts/suites/cache-tests.mjs CHECKOUT THALWEG [--json]
//
// Standard output: a table in Markdown; with --json one object. Exit 0: nothing fails by the proxy that is the proxy's
// affair; 1: something does; 77: there is no such checkout, or no THALWEG.
import { spawn, spawnSync } from 'node:child_process'
import { existsSync, mkdtempSync, rmSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath, pathToFileURL } from 'node:url'

const self = fileURLToPath(import.meta.url)
const flags = process.argv.slice(2).filter(a => a.startsWith('--'))
const [checkout, thalweg, base, proxy] = process.argv.slice(2).filter(a => !a.startsWith('--'))

function skip (why) {
  console.error(`skipped: ${why}`)
  process.exit(77)
}
if (!checkout || !existsSync(join(checkout, 'test-engine/cli.mjs'))) skip(`no checkout of cache-tests at ${checkout}`)
if (!existsSync(join(checkout, 'node_modules/undici'))) skip(`no undici in ${checkout}: run npm install there`)
if (!thalweg || !existsSync(thalweg)) skip(`no program ${thalweg}`)
const part = path => import(pathToFileURL(join(resolve(checkout), path)))

// The suite's own client; its results on standard output.
async function client () {
  const undici = createRequire(join(resolve(checkout), 'package.json'))('undici')
  if (proxy) {
    // The suite makes an Agent of its own where it looks at interim answers.
    undici.Agent = class extends undici.ProxyAgent {
      constructor () { super({ uri: proxy, proxyTunnel: false }) }
    }
    undici.setGlobalDispatcher(new undici.Agent())
  }
  const tests = (await part('tests/index.mjs')).default
  const { runTests, getResults } = await part('test-engine/client/runner.mjs')
  await runTests(tests, false, base)
  process.stdout.write(JSON.stringify(getResults()), () => process.exit(0))
}

function results (base, proxy) {
  const done = spawnSync(process.execPath, ['--no-warnings', self, '--client', checkout, thalweg, base, proxy].filter(Boolean),
    { maxBuffer: 1 << 26, stdio: ['ignore', 'pipe', 'inherit'] })
  if (done.status !== 0) throw new Error(`the suite's client ended with ${done.status}`)
  return JSON.parse(done.stdout)
}

// Starts a program and waits for a line that matches; the match, and the end of the program.
function start (command, args, options, pattern) {
  const child = spawn(command, args, { ...options, stdio: ['ignore', 'pipe', 'inherit'] })
  return new Promise((resolve, reject) => {
    child.once('exit', code => reject(new Error(`${command} ended with ${code}`)))
    createInterface(child.stdout).on('line', line => {
      const match = line.match(pattern)
      if (match) resolve([match[1], () => child.removeAllListeners('exit').kill()])
    })
  })
}

const CACHE = /does not come from cache|should have been conditional|\bAge\b|status is 999|instead of .*304|invalidated/i

async function main () {
  const scratch = mkdtempSync(join(tmpdir(), 'cache-tests-'))
  const env = { ...process.env, npm_config_protocol: 'http', npm_config_port: '0', npm_config_pidfile: join(scratch, 'pid') }
  const [port, endServer] = await start(process.execPath, ['test-engine/server/server.mjs'], { cwd: checkout, env }, /:(\d+)\/$/)
  const home = { ...process.env, HOME: scratch, XDG_STATE_HOME: scratch, XDG_CACHE_HOME: scratch, XDG_CONFIG_HOME: scratch }
  const [at, endProxy] = await start(resolve(thalweg),
    ['proxy', '--listen', '127.0.0.1:0', '--no-relays', '--history', 'none', '--json'], { env: home }, /"ready".*"listen":"([^"]+)"/)
  const base = `http://localhost:${port}`
  const direct = results(base)
  const by = results(base, `http://${at}`)
  endProxy()
  endServer()
  rmSync(scratch, { recursive: true })
  report((await part('tests/index.mjs')).default, (await part('test-engine/lib/results.mjs')), direct, by)
}

function report (suites, { determineTestResult, resultTypes }, direct, by) {
  const said = result => result === true ? true : `${result[0]}: ${result[1]}`
  const classes = {
    cache: 'the answer is to come from a cache, or the request to be made conditional by one',
    depends: 'the suite does not judge it: it builds on a test that needs a cache',
    same: 'it fails alike without a proxy',
    optional: 'optional behaviour (the suite: optimal, check)',
    proxy: 'the proxy\'s affair'
  }
  const failed = Object.fromEntries(Object.keys(classes).map(name => [name, []]))
  const kinds = {}
  for (const test of suites.flatMap(suite => suite.tests)) {
    if (!(test.id in by)) continue
    kinds[test.id] = test.kind || 'required'
    if (by[test.id] === true) continue
    const why = by[test.id][1]
    const name = CACHE.test(why) ? 'cache'
      : determineTestResult(suites, test.id, by) === resultTypes.dependency_fail ? 'depends'
        : said(direct[test.id]) === said(by[test.id]) ? 'same'
          : kinds[test.id] !== 'required' ? 'optional' : 'proxy'
    failed[name].push([test.id, why])
  }
  const ids = Object.keys(by)
  const passes = results => ids.filter(id => results[id] === true).length
  const only = (one, other) => ids.filter(id => one[id] === true && other[id] !== true)
  const counts = {
    tests: ids.length, passed: passes(by), passed_directly: passes(direct), lost_by_proxy: only(direct, by).length,
    won_by_proxy: only(by, direct).length,
    ...Object.fromEntries(Object.entries(failed).map(([name, list]) => [`failed_${name}`, list.length]))
  }
  if (flags.includes('--json')) {
    const metrics = Object.fromEntries(Object.entries(counts).map(([name, value]) => [name, { unit: 'tests', value }]))
    console.log(JSON.stringify({ metrics, failed }))
  } else {
    const kind = (list, kind) => list.filter(([id]) => kinds[id] === kind).length
    console.log(`${counts.tests} tests; by the proxy ${counts.passed} pass, without a proxy ${counts.passed_directly}.\n`)
    console.log('| What fails by the proxy, and why | required | optimal | check | all |\n|---|---|---|---|---|')
    for (const [name, text] of Object.entries(classes)) {
      const list = failed[name]
      console.log(`| ${text} | ${kind(list, 'required')} | ${kind(list, 'optimal')} | ${kind(list, 'check')} | ${list.length} |`)
    }
    const [lost, won] = [only(direct, by), only(by, direct)]
    console.log(`\nPass without a proxy and not by it: ${lost.join(', ') || 'none'}. By the proxy alone: ${won.join(', ') || 'none'}.\n`)
    console.log('| Test | Class | By the proxy | Without |\n|---|---|---|---|')
    for (const name of Object.keys(classes).filter(name => name !== 'cache')) {
      for (const [id, why] of failed[name]) {
        const text = direct[id] === true ? 'passes' : said(direct[id]) === said(by[id]) ? 'the same' : direct[id][1]
        console.log(`| \`${id}\` | ${name} | ${why} | ${text} |`.replaceAll('\n', ' '))
      }
    }
  }
  process.exit(failed.proxy.length > 0 ? 1 : 0)
}

await (flags.includes('--client') ? client() : main())
