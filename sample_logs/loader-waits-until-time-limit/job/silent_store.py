import socket,time
s=socket.socket(); s.setsockopt(socket.SOL_SOCKET,socket.SO_REUSEADDR,1); s.bind(("127.0.0.1",28731)); s.listen(5)
keep=[]
while True: keep.append(s.accept())
