"""Strangers at the meeting of ranks, and a rank that does what docs/ztrain/rendezvous.md says.

usage: stranger.py job PORT                          a rank 0 that accepts any rank, without a proof;
                                                     prints the job of the hello
       stranger.py old PORT SIZE                     a hello of the first version, of rank 1 of SIZE
       stranger.py silent PORT N                     N connections; every second one sends half a hello;
                                                     prints "here" and its process
       stranger.py guess PORT JOB KIND RANK SIZE     a hello, and a proof with another key
       stranger.py join PORT JOB SECRET RANK SIZE FILE   comes with the secret; what it said goes to FILE
       stranger.py replay PORT FILE                  says that again
       stranger.py relay PORT TO                     passes connections on to another port; prints the same
       stranger.py noise PORT N SEED                 N connections with bytes of no meaning
"""
import hashlib
import hmac
import os
import random
import socket
import struct
import sys
import threading
import time

MAGIC = b'ZTRAIN2\n'
HELLO, REPLY, PROOF = 144, 320, 40
SAID = {1: 'welcome', 2: 'another job', 3: 'refused', 4: 'prove it'}


def tag(key, what, data):
    mac = lambda k, d: hmac.new(k, d, hashlib.sha256).digest()
    return mac(mac(key, what), data)


def come(port):
    for _ in range(200):
        try:
            return socket.create_connection(('127.0.0.1', port), timeout=20)
        except OSError:
            time.sleep(0.02)
    sys.exit('the port is closed')


def read(s, n):
    b = b''
    while len(b) < n:
        more = s.recv(n - len(b))
        if not more:
            return b
        b += more
    return b


def hello(at, job, kind, rank, size, to=0):
    b = MAGIC + struct.pack('<QIIIIq64sII', job, rank, size, 9, to, os.getpid(), b'stranger', kind, at)
    return b + os.urandom(32)


def pass_on(a, b):
    try:
        while data := a.recv(1 << 16):
            b.sendall(data)
        b.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def said(b):
    if len(b) < REPLY:
        return 'hung up'
    return '%s: %s' % (SAID.get(struct.unpack_from('<I', b, 8)[0]), b[80:].split(b'\0')[0].decode())


def talk(s, first, key):
    """What was sent, the answer, and whether it is signed."""
    s.sendall(first)
    ask = read(s, REPLY)
    if len(ask) < REPLY or struct.unpack_from('<I', ask, 8)[0] != 4:
        return first, ask, False, b''
    session = tag(key, b'session', first + ask)
    proof = MAGIC + tag(session, b'guest', b'')
    s.sendall(proof)
    end = read(s, REPLY)
    signed = len(end) == REPLY and end[48:80] == tag(session, b'host 1', end[:48] + bytes(32) + end[80:])
    return first + proof, end, signed, session


def main(what, port, *arg):
    port = int(port)
    if what == 'job':
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind(('127.0.0.1', port))
        s.listen()
        for i in range(3):
            c, _ = s.accept()
            b = read(c, HELLO)
            if i == 0:
                print('%016x' % struct.unpack_from('<Q', b, 8), flush=True)
            kind = struct.unpack_from('<I', b, 104)[0]
            # a verdict at once; a question, and then a verdict without a signature
            if i:
                c.sendall(MAGIC + struct.pack('<II', 4, kind) + bytes(REPLY - 16))
                read(c, PROOF)
            c.sendall(MAGIC + struct.pack('<II', 3 if i == 1 else 1, kind) + bytes(REPLY - 16))
            c.close()
    elif what == 'old':
        s = come(port)
        s.sendall(b'ZTRAIN1\n' + struct.pack('<QIIIIq64s', int(arg[1], 16), 1, int(arg[0]), 9, 0, 1, b'stranger'))
        print(read(s, 8))
    elif what == 'silent':
        keep = []
        for i in range(int(arg[0])):
            keep.append(come(port))
            if i % 2:
                keep[-1].sendall(hello(port, 0, 0, 1, 2)[:70])
        print('here', os.getpid(), flush=True)
        time.sleep(60)
    elif what == 'guess':
        s = come(port)
        _, end, signed, _ = talk(s, hello(port, int(arg[0], 16), *map(int, arg[1:4])), os.urandom(32))
        print(said(end), 'signed' if signed else 'not signed')
    elif what == 'join':
        s = come(port)
        job = int(arg[0], 16)
        key = tag(arg[1].encode(), b'ztrain meeting', struct.pack('<Q', job))
        sent, end, signed, session = talk(s, hello(port, job, 1, int(arg[2]), int(arg[3])), key)
        open(arg[4], 'wb').write(sent)
        print(said(end), 'signed' if signed else 'not signed')
        if said(end) == 'welcome: ':
            end = read(s, REPLY)
            size = int(arg[3])
            book = read(s, 24 * size)
            print('book:', read(s, 32) == tag(session, b'book', book) and
                  end[48:80] == tag(session, b'host 2', end[:48] + bytes(32) + end[80:]))
    elif what == 'replay':
        s = come(port)
        b = open(arg[0], 'rb').read()
        s.sendall(b[:HELLO])
        print(said(read(s, REPLY)))
        s.sendall(b[HELLO:])
        print(said(read(s, REPLY)))
    elif what == 'relay':
        s = socket.create_server(('127.0.0.1', port))
        print('here', os.getpid(), flush=True)
        while True:
            ends = [s.accept()[0]]
            try:
                ends.append(socket.create_connection(('127.0.0.1', int(arg[0]))))
            except OSError:
                ends[0].close()
                continue
            for a, b in (ends, ends[::-1]):
                threading.Thread(target=pass_on, args=(a, b), daemon=True).start()
    elif what == 'noise':
        r = random.Random(int(arg[1]))
        for _ in range(int(arg[0])):
            s = come(port)
            b = bytearray(hello(port, r.getrandbits(64), r.randrange(6), r.randrange(5), r.randrange(5)))
            for _ in range(r.randrange(4)):
                b[r.randrange(len(b))] = r.randrange(256)
            b = (bytes(b[:r.randrange(len(b) + 1)]) if r.randrange(2) else bytes(b) + os.urandom(r.randrange(99)))
            try:
                s.sendall(b)
                s.shutdown(socket.SHUT_WR)
                read(s, REPLY)
            except OSError:
                pass
            s.close()


main(*sys.argv[1:])
